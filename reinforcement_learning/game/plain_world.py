"""The world in which trained policies are evaluated and recorded, without training aids."""

from dataclasses import replace

from reinforcement_learning.settings import EnvironmentSettings


def without_training_aids(env: EnvironmentSettings) -> EnvironmentSettings:
    """Return the same world, but with all agents starving at the full rate and no episode ending early."""
    return replace(env, resilient_population=0, early_stop_agents=0)


def evaluation_world() -> EnvironmentSettings:
    """Return the world of evaluations, with maps unseen by policies trained with the default map seed."""
    return without_training_aids(EnvironmentSettings(map_seed=1))
