"""The world that trained policies are evaluated and recorded in, without what only training needs."""

from dataclasses import replace

from reinforcement_learning.settings import EnvironmentSettings


def without_training_aids(env: EnvironmentSettings) -> EnvironmentSettings:
    """Return the same world in which no agent starves more slowly than others and no episode ends early."""
    return replace(env, resilient_population=0, early_stop_agents=0)


def evaluation_world() -> EnvironmentSettings:
    """Return the world of evaluations: on maps that no policy trained with the default map seed has seen."""
    return without_training_aids(EnvironmentSettings(map_seed=1))
