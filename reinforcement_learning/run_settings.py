"""Settings of a run as files hold them, the worlds of evaluations, and options and combinations that are refused."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from common.files import read_json
from common.user_error import UserError
from common.yaml_file import one_line, read_yaml, shown
from reinforcement_learning.settings import EnvironmentSettings, RolloutSettings, Settings, older_rewards

RUN_SETTINGS_FILE = "settings.json"
METRICS_FILE = "metrics.jsonl"
# These affect where a run computes, how long it lasts and how it is logged, but not the steps trained so far.
CHANGEABLE_WHEN_RESUMED = (
    "env.maps_dir", "task.embeddings_dir", "rollout.num_envs", "rollout.vectorization", "rollout.num_workers",
    "rollout.ray_address", "train.total_agent_steps", "train.device", "train.num_checkpoints",
    "train.checkpoint_spacing", "train.checkpoint_interval", "wandb.project", "wandb.entity", "wandb.group",
    "wandb.mode",
)  # fmt: skip
_OVERRIDES = ("agents", "debug")


def load_settings(path: Path, agent: str, debug: bool = False) -> Settings:
    """Read config.yaml, override it with the agent's own section and (if requested) the `debug` section, and check it.

    Raises:
        UserError: as `read_yaml`; or a key is unknown, or a value is of the wrong type or impossible: the message names
            the key, the value and what is allowed.
    """
    content = _mapping(read_yaml(path, "--config"), "the file", path)
    layers = [{key: value for key, value in content.items() if key not in _OVERRIDES}]
    layers.append(_mapping(_mapping(content.get("agents"), "agents", path).get(agent), f"agents.{agent}", path))
    if debug:
        layers.append(_mapping(content.get("debug"), "debug", path))
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, values in layer.items():
            merged.setdefault(section, {}).update(_mapping(values, section, path))
    try:
        return TypeAdapter(Settings).validate_python(merged)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def read_run_settings(folder: Path) -> tuple[str, Settings]:
    """Return the agent and the settings of a run (UserError: there is none, or it is damaged or of another version)."""
    path = folder / RUN_SETTINGS_FILE
    if not path.exists():
        raise UserError(f"{folder} holds no run to resume: it lacks {RUN_SETTINGS_FILE}")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("agent"), str):
        raise UserError(f"{path} does not name the agent: it is damaged, or not the settings of a run")
    settings = content.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("policy"), dict):
        settings["policy"].setdefault("network", "earlier")  # the only one when runs did not say
    if isinstance(settings, dict) and isinstance(reward := settings.get("reward"), dict):
        settings["reward"] = older_rewards(reward)
    try:
        return content["agent"], TypeAdapter(Settings).validate_python(settings)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def stated_in_run(folder: Path, key: Literal["policies_dir", "command"]) -> str | None:
    """Return the folder that a run's policy goes to, or the command that began it; None for runs that do not say."""
    content = read_json(folder / RUN_SETTINGS_FILE)
    stated = content.get(key) if isinstance(content, dict) else None
    return stated if isinstance(stated, str) else None


def check_training(settings: Settings) -> None:
    """Refuse combinations that cannot work, before anything expensive starts."""
    train, env = settings.train, settings.env
    minibatch = train.minibatch_rows * train.bptt_horizon
    if train.batch_size % minibatch:
        raise UserError(
            f"train.batch_size {train.batch_size} must be a multiple of train.minibatch_rows x train.bptt_horizon = "
            f"{train.minibatch_rows} x {train.bptt_horizon} = {minibatch}"
        )
    for name, shared in (
        ("train.batch_size", train.batch_size),
        ("train.minibatch_rows", train.minibatch_rows),
        ("rollout.num_envs", settings.rollout.num_envs),
    ):
        if shared % train.processes:
            raise UserError(f"{name} {shared} cannot be shared evenly by train.processes {train.processes}")
    if len(train.seats) > env.num_agents:
        raise UserError(f"train.pool_kernel {train.pool_kernel} has more seats than env.num_agents {env.num_agents}")
    if train.has_opponents and train.processes > 1:
        raise UserError(
            f"train.pool_kernel {train.pool_kernel}: opponents need a run of one process: leave out --processes"
        )
    if train.total_agent_steps < train.batch_size:
        raise UserError(
            f"train.total_agent_steps {train.total_agent_steps} is less than one batch "
            f"(train.batch_size {train.batch_size}): no update would take place"
        )
    if env.early_stop_agents >= env.num_agents:
        raise UserError(
            f"env.early_stop_agents {env.early_stop_agents} must be less than env.num_agents {env.num_agents}: "
            "every episode would end at once"
        )
    if settings.policy.cell != "lstm" and not settings.policy.lstm_layers:
        raise UserError(
            f"policy.cell {settings.policy.cell} is the cell of a memory, and policy.lstm_layers is 0: set "
            "policy.lstm_layers to 1 (without --no-recurrence), or policy.cell to lstm"
        )
    if settings.task.syllabus != "none" and importlib.util.find_spec("syllabus") is None:
        raise UserError(
            f"--syllabus {settings.task.syllabus} needs the library Syllabus: install it with `make setup-all` or "
            "`uv sync --inexact --extra curricula`"
        )
    if settings.task.syllabus == "prioritized_level_replay" and env.task_shown_for is not None:
        raise UserError(
            "--syllabus prioritized_level_replay knows tasks by what policies are shown: leave out --task.shown-for"
        )
    if env.interrupt is not None and env.interrupt >= env.horizon:
        raise UserError(
            f"env.interrupt {env.interrupt} must be less than env.horizon {env.horizon}: nobody would be interrupted"
        )
    if settings.task.syllabus != "none" and train.processes > 1:
        raise UserError(f"--syllabus learns from the lives of one process: leave out --processes {train.processes}")
    check_workers(replace(settings.rollout, num_envs=settings.rollout.num_envs // train.processes))


def check_resumed(before: Settings, now: Settings) -> None:
    """Refuse to resume a run with settings that would make it a different run."""
    for section in fields(Settings):
        for setting in fields(getattr(before, section.name)):
            name = f"{section.name}.{setting.name}"
            was, is_now = (getattr(getattr(settings, section.name), setting.name) for settings in (before, now))
            if was != is_now and name not in CHANGEABLE_WHEN_RESUMED:
                raise UserError(
                    f"--resume: {name} was {was} and cannot become {is_now}; "
                    f"only these may change: {', '.join(CHANGEABLE_WHEN_RESUMED)}"
                )


def check_workers(rollout: RolloutSettings) -> None:
    """Refuse a number of workers that cannot share the environments evenly."""
    if rollout.num_workers and rollout.num_envs % rollout.num_workers:
        raise UserError(
            f"rollout.num_envs {rollout.num_envs} must be a multiple of rollout.num_workers {rollout.num_workers}"
        )
    if rollout.vectorization != "serial" and rollout.num_workers % rollout.groups:
        raise UserError(
            f"rollout.num_workers {rollout.num_workers} must be even or 0, as rollout.num_envs {rollout.num_envs} is "
            "even: half of the workers play while the policy decides for the worlds of the others"
        )


def _mapping(value: object, what: str, path: Path) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path}: {one_line(what)} must hold settings as `key: value` lines, not {shown(value)}")
    return {str(key): entry for key, entry in value.items()}


Mode = Literal["pvp", "pve"]
Protocol = Literal["toolkit", "original"]
"""Rules of play: this toolkit's, or those of the published evaluations."""

SPAWN_IMMUNITY = 20


def without_training_aids(env: EnvironmentSettings) -> EnvironmentSettings:
    """Return the same world without fog, with all agents starving at the full rate, and no episode ending early."""
    return replace(env, resilient_population=0, early_stop_agents=0, death_fog_tick=None)


def evaluation_world() -> EnvironmentSettings:
    """Return the world of evaluations, with maps unseen by policies trained with the default map seed."""
    return without_training_aids(EnvironmentSettings(map_seed=1))


def original_rules(mode: Mode) -> dict[str, Any]:
    """Return the settings of a world that the original protocol fixes."""
    return {
        "num_maps": 4 if mode == "pve" else 256,
        "map_seed": 0,
        "flip_terrain": True,
        "ammunition_damage": 0,
        "spawn_immunity": SPAWN_IMMUNITY,
    }


def played_by(env: EnvironmentSettings, protocol: Protocol, mode: Mode) -> EnvironmentSettings:
    """Return the world of an evaluation by a protocol (UserError: a setting that it fixes was chosen otherwise)."""
    if protocol == "toolkit":
        return env
    rules, usual = original_rules(mode), evaluation_world()
    for name, value in rules.items():
        if getattr(env, name) not in (value, getattr(usual, name)):
            raise UserError(f"--protocol original plays with {name} {value}: leave out --env.{name.replace('_', '-')}")
    return replace(env, **rules)


_LEAVE_OUT = "leave it out: "
ORIGINAL_TRAIN: Mapping[str, str] = {
    "--train.total-timesteps": "--train.total-agent-steps",
    "--train.anneal-lr": "--train.anneal-learning-rate",
    "--train.no-anneal-lr": "--train.no-anneal-learning-rate",
    "--train.norm-adv": "--train.normalize-advantage",
    "--train.no-norm-adv": "--train.no-normalize-advantage",
    "--train.clip-coef": "--train.clip-coefficient",
    "--train.clip-vloss": "--train.clip-value",
    "--train.no-clip-vloss": "--train.no-clip-value",
    "--train.vf-clip-coef": "--train.value-clip",
    "--train.ent-coef": "--train.entropy-coefficient",
    "--train.vf-coef": "--train.value-coefficient",
    "--train.max-grad-norm": "--train.max-gradient-norm",
    "--train.batch-rows": "--train.minibatch-rows",
    "--train.num-envs": "--rollout.num-envs",
    "--train.envs-per-worker": "--rollout.num-workers",
    "--train.data-dir": "--runs-dir",
    **dict.fromkeys(
        ("--train.envs-per-batch", "--train.env-pool", "--train.no-env-pool"),
        _LEAVE_OUT + "worlds play in two groups by turns",
    ),
    **dict.fromkeys(
        ("--train.torch-deterministic", "--train.no-torch-deterministic"),
        _LEAVE_OUT + "runs on a CPU can be repeated bit for bit",
    ),
    **dict.fromkeys(("--train.compile", "--train.compile-mode"), _LEAVE_OUT + "networks are not compiled"),
    **dict.fromkeys(("--train.verbose", "--train.no-verbose"), _LEAVE_OUT + "progress is always shown"),
    "--env.max-episode-length": "--env.horizon",
    "--env.maps-path": "--env.maps-dir",
    **dict.fromkeys(
        ("--env.map-force-generation", "--env.no-map-force-generation"),
        _LEAVE_OUT + "maps are generated if they are not there",
    ),
    **dict.fromkeys(("--env.task-size", "--policy.task-size"), "--task.embedding-size"),
    **dict.fromkeys(
        ("--policy.input-size", "--recurrent.input-size", "--recurrent.hidden-size"), "--policy.hidden-size"
    ),
    "--recurrent.num-layers": "--policy.lstm-layers",
    "--reward-wrapper.heal-bonus-weight": "--reward.heal",
    "--reward-wrapper.explore-bonus-weight": "--reward.explore",
    "--reward-wrapper.hp-bonus-weight": "--reward.hp",
    "--reward-wrapper.exp-bonus-weight": "--reward.experience",
    "--reward-wrapper.defense-bonus-weight": "--reward.defence",
    "--reward-wrapper.attack-bonus-weight": "--reward.attack",
    "--reward-wrapper.gold-bonus-weight": "--reward.gold",
    "--reward-wrapper.custom-bonus-scale": "--reward.scale",
    "--reward-wrapper.disable-give": "--reward.disable-give",
    "--reward-wrapper.no-disable-give": "--reward.no-disable-give",
    "--reward-wrapper.donot-attack-dangerous-npc": "--reward.spare-dangerous-npcs",
    "--reward-wrapper.no-donot-attack-dangerous-npc": "--reward.no-spare-dangerous-npcs",
    "--reward-wrapper.early-stop-agent-num": "--env.early-stop-agents",
    "--reward-wrapper.no-use-custom-reward": "--reward.bonus-coef 0",
    "--reward-wrapper.use-custom-reward": _LEAVE_OUT + "agents are paid their own reward",
    "--reward-wrapper.eval-mode": _LEAVE_OUT + "evaluate.py evaluates",
    "--reward-wrapper.clip-unique-event": _LEAVE_OUT + "at most 3 events a tick are paid",
    "--reward-wrapper.randomize-spawn-immunity": "--env.spawn-immunity",
}
"""Options of the original's train.py that have another name here, or no meaning: what to use instead."""

ORIGINAL_EVALUATE: Mapping[str, str] = {
    "--debug": "-n 4 and a small world, such as --env.map-size 32 --env.num-agents 16"
}
"""The same of its evaluate.py."""


def refuse_original(arguments: Sequence[str], replaced: Mapping[str, str]) -> None:
    """Refuse options that only the original has.

    Args:
        replaced: option of the original -> what to use instead.

    Raises:
        UserError: one is among the arguments; says what to use instead.
    """
    for argument in arguments:
        option = argument.partition("=")[0].replace("_", "-")
        if option in replaced:
            instead = replaced[option]
            use = instead if instead.startswith(_LEAVE_OUT) else f"use {instead}"
            raise UserError(f"{option} is an option of the original repository; {use}")
