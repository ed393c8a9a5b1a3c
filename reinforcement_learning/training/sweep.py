"""Search spaces of sweeps, checked against our settings, and sweeps whose values Weights & Biases chooses.

Each trial is a separate process: `train.py` with the sweep's values as JSON after `--trial`.
"""

import contextlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import TypeAdapter

from common.user_error import UserError
from common.weights_and_biases import mode_of
from common.yaml_file import one_line, read_yaml, shown
from reinforcement_learning.settings import Settings, WandbSettings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MADE_HERE = ("program", "command")
_OF_LOGARITHMS = ("log_uniform", "q_log_uniform", "inv_log_uniform")  # min and max are logarithms of values


def override(settings: Settings, values: Mapping[str, object]) -> Settings:
    """Return the settings with other values, by full names such as `train.learning_rate`.

    Raises:
        UserError: there is no such setting, or the value is of the wrong type or not allowed.
    """
    content = asdict(settings)
    for name, value in values.items():
        section, _, key = name.partition(".")
        if section not in content or not key:
            raise UserError(f"unknown setting {one_line(name)}: write a section and a key, such as train.learning_rate")
        content[section][key] = value
    return TypeAdapter(Settings).validate_python(content)


def trial_settings(settings: Settings, trial: str) -> Settings:
    """Return the settings of a trial; `trial` is a JSON object of full names of settings and values."""
    try:
        values = orjson.loads(trial)
    except orjson.JSONDecodeError as error:
        raise UserError(f"--trial {shown(trial)} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"--trial {shown(trial)} must be a JSON object of settings and values")
    return override(settings, values)


def is_local(track: bool, wandb: WandbSettings) -> bool:
    """Tell whether a sweep runs without the Weights & Biases server."""
    return not track or mode_of(wandb.mode) != "online"


def check_sweep(runs: int, sweep_id: str | None, local: bool) -> None:
    """Refuse options that a sweep does not support."""
    if runs < 1:
        raise UserError(f"--sweep-runs {runs} must be at least 1")
    if local and sweep_id is not None:
        raise UserError(
            f"--sweep-id {sweep_id} is on the Weights & Biases server: leave out --no-track and --wandb.mode offline; "
            "to continue a local sweep, name it with -n"
        )


def read_sweep(path: Path, settings: Settings) -> dict[str, Any]:
    """Read a sweep's configuration, and check that each parameter is a setting and each value is allowed.

    Whoever chooses the values checks the rest, such as the method.

    Raises:
        UserError: as `read_yaml`; or the message names the file, the parameter and what is wrong with it.
    """
    config: Any = read_yaml(path, "--sweep-config")
    parameters = config.get("parameters") if isinstance(config, dict) else None
    if not isinstance(parameters, dict) or not parameters:
        raise UserError(f"{path} needs `parameters:`, each a setting such as train.learning_rate")
    for key in _MADE_HERE:
        if key in config:
            raise UserError(f"{path}: leave out `{key}:`, train.py sets it")
    config["parameters"] = {str(name): _limits(space) for name, space in parameters.items()}
    for name, space in config["parameters"].items():
        try:
            for value in _values_to_try(one_line(name), space):
                override(settings, {name: value})
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return config


def trial_command(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return what tells the Weights & Biases agent how to run a trial; `script` is as seen from where agents start."""
    return {
        "program": script,
        "command": ["${env}", "${interpreter}", "${program}", *arguments, "--trial", "${args_json}"],
    }


def agent_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that the agent needs; `folder` is for the agent's files."""
    # The agent calls `python`, which must be this one with its packages, even if the environment is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "WANDB_DIR": str(folder.resolve())}


def run_sweep(
    config: dict[str, Any] | None, sweep_id: str | None, runs: int, wandb: WandbSettings, folder: Path
) -> None:
    """Start or join a sweep, and run trials, each in a separate process.

    Ctrl-C lets the current trial finish; a second one stops it.

    Args:
        config: of a new sweep, with its command; None to join one.
        sweep_id: of the sweep to join, also as entity/project/id.

    Raises:
        UserError: the service cannot be reached or refuses.
    """
    import wandb as service

    os.environ.update(agent_environment(folder))
    try:
        chosen = sweep_id or service.sweep(config or {}, entity=wandb.entity, project=wandb.project)
        service.agent(chosen, entity=wandb.entity, project=wandb.project, count=runs)
    except Exception as error:  # of the service, and of the network libraries below it
        raise UserError(f"the sweep ended: {' '.join(str(error).split())}") from None


def _limits(space: object) -> object:
    """Convert limits such as `1e-4`, which YAML 1.1 reads as strings; whole ones stay whole."""
    if not isinstance(space, dict):
        return space
    converted = dict(space)
    for key in ("min", "max", "q"):
        with contextlib.suppress(ValueError):
            if isinstance(space.get(key), str) and not math.isnan(number := float(space[key])):
                converted[key] = int(number) if number.is_integer() else number
    return converted


def _values_to_try(name: str, space: object) -> list[object]:
    """Return all values that a parameter can take, or its limits."""
    if not isinstance(space, dict):
        raise UserError(f"{name} must hold `values:` or `min:` and `max:`, not {shown(space)}")
    if "parameters" in space:
        raise UserError(f"{name} holds parameters: write each setting under its full name, such as train.learning_rate")
    if space.get("distribution") in _OF_LOGARITHMS:
        raise UserError(f"{name}: use distribution: log_uniform_values, whose min and max are values themselves")
    if "value" in space:
        return [space["value"]]
    if isinstance(space.get("values"), list) and space["values"]:
        return space["values"]
    if "min" in space and "max" in space:
        return [space["min"], space["max"]]
    raise UserError(f"{name} must hold `values:` (a list) or `min:` and `max:`, so that values can be checked")


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
        """Return the parameters as Optuna's distributions (UserError: one is unknown here, or its range is empty)."""
        return {name: _distribution(one_line(name), space) for name, space in self.parameters.items()}

    @property
    def combinations(self) -> int | None:
        """Number of trials in the whole search; None if it has no end."""
        return math.prod(len(_choices(space)) for space in self.parameters.values()) if self.method == "grid" else None

    def suggest(self, number: int, finished: Sequence[tuple[Values, float]], seed: int) -> Values:
        """Choose the values of a trial; the same arguments always give the same values.

        Args:
            number: of the trial, from 0; in a grid less than `combinations`.
            finished: values and metric of all earlier trials that finished, in order.
        """
        if self.method == "grid":
            chosen = next(islice(product(*map(_choices, self.parameters.values())), number, None))
            return dict(zip(self.parameters, chosen, strict=True))
        import numpy as np
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = self.distributions()
        own_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        sampler = optuna.samplers.TPESampler if self.method == "bayes" else optuna.samplers.RandomSampler
        study = optuna.create_study(direction=self.goal, sampler=sampler(seed=own_seed))
        for values, metric in finished:
            study.add_trial(optuna.trial.create_trial(params=values, distributions=distributions, value=metric))
        return dict(study.ask(distributions).params)


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
