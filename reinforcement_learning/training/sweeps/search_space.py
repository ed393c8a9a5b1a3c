"""The search space of a local sweep: a sweep file in the format of Weights & Biases, searched by Optuna."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.user_error import UserError
from common.yaml_file import one_line, shown

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

METHODS = ("bayes", "random", "grid")
GOALS = ("maximize", "minimize")
_KEYS = ("method", "metric", "parameters", "name", "description", "project", "entity")
_DISTRIBUTIONS = ("constant", "categorical", "int_uniform", "uniform", "q_uniform", "log_uniform_values")
_PARTS = ("distribution", "value", "values", "min", "max", "q")

Values = dict[str, Any]
"""Values of a trial, by full names of settings such as `train.learning_rate`."""


@dataclass(frozen=True)
class SearchSpace:
    """What a sweep tries, and what it is after."""

    method: str  # bayes (tree-structured Parzen estimator), random, or grid (every combination once)
    metric: str  # name in metrics.jsonl; a trial is judged by the last value reported
    goal: str  # maximize or minimize
    parameters: dict[str, dict[str, Any]]  # full name of a setting -> its `value`, `values`, or `min` and `max`

    def distributions(self) -> dict[str, "BaseDistribution"]:
        """Return the parameters as Optuna's distributions.

        Raises:
            UserError: Optuna or this mode does not know a distribution, or its range is empty.
        """
        return {name: _distribution(one_line(name), space) for name, space in self.parameters.items()}

    @property
    def combinations(self) -> int | None:
        """Number of trials in the whole search; None if it has no end."""
        return int(np.prod([len(_choices(space)) for space in self.parameters.values()])) if self._is_grid else None

    def suggest(self, number: int, finished: Sequence[tuple[Values, float]], seed: int) -> Values:
        """Choose the values of a trial; the same arguments always give the same values.

        Args:
            number: of the trial, from 0; in a grid less than `combinations`.
            finished: values and metric of all earlier trials that finished, in order.
        """
        if self._is_grid:
            chosen = next(islice(product(*map(_choices, self.parameters.values())), number, None))
            return dict(zip(self.parameters, chosen, strict=True))
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = self.distributions()
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        sampler = (
            optuna.samplers.TPESampler(seed=own_seed)
            if self.method == "bayes"
            else optuna.samplers.RandomSampler(seed=own_seed)
        )
        study = optuna.create_study(direction=self.goal, sampler=sampler)
        for values, metric in finished:
            study.add_trial(optuna.trial.create_trial(params=values, distributions=distributions, value=metric))
        return dict(study.ask(distributions).params)

    @property
    def _is_grid(self) -> bool:
        return self.method == "grid"


def read_search_space(config: Mapping[str, Any], path: Path) -> SearchSpace:
    """Read a sweep file's content whose parameters `read_sweep` has checked.

    Raises:
        UserError: it lacks a method or metric, or asks for something that only Weights & Biases can do.
    """
    for key in config:
        if key not in _KEYS:
            raise UserError(
                f"{path}: `{one_line(str(key))}:` does not work in a local sweep: remove it; known: {', '.join(_KEYS)}"
            )
    method, metric = config.get("method"), config.get("metric")
    if method not in METHODS:
        raise UserError(f"{path}: method is {shown(method)}: must be {', '.join(METHODS)}")
    if not isinstance(metric, dict) or set(metric) != {"name", "goal"} or metric["goal"] not in GOALS:
        raise UserError(f"{path} needs `metric:` with a `name:` from metrics.jsonl and a `goal:`, {' or '.join(GOALS)}")
    space = SearchSpace(method, str(metric["name"]), metric["goal"], dict(config["parameters"]))
    try:
        space.distributions()
        if method == "grid" and (
            ranges := [name for name, parameter in space.parameters.items() if "min" in parameter]
        ):
            raise UserError(f"{one_line(ranges[0])} needs `values:` (a list): a grid cannot try every value of a range")
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return space


def _choices(space: Mapping[str, Any]) -> list[Any]:
    return [space["value"]] if "value" in space else list(space["values"])


def _distribution(name: str, space: Mapping[str, Any]) -> "BaseDistribution":
    from optuna import distributions

    for part in space:
        if part not in _PARTS:
            raise UserError(f"{name}: `{one_line(str(part))}:` does not work in a local sweep: remove it")
    if "value" in space or "values" in space:
        return distributions.CategoricalDistribution(_choices(space))
    low, high = space["min"], space["max"]
    whole = isinstance(low, int) and isinstance(high, int)
    kind = space.get("distribution", "int_uniform" if whole else "uniform")
    if kind not in _DISTRIBUTIONS:
        raise UserError(f"{name}: a local sweep knows the distributions {', '.join(_DISTRIBUTIONS)}, not {shown(kind)}")
    try:
        if kind == "int_uniform":
            return distributions.IntDistribution(low, high)
        step = space.get("q", 1) if kind == "q_uniform" else None
        return distributions.FloatDistribution(low, high, log=kind == "log_uniform_values", step=step)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {one_line(str(error))}") from None
