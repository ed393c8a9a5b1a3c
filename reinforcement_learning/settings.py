"""Every setting of a run: what it means, in which unit, and which values are possible.

Precedence, weakest first: the defaults below, config.yaml, the agent's own section of config.yaml, its `debug`
section when debugging, the command line.
"""

import importlib.util
import math
import re
from collections.abc import Callable
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import tyro
import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from activation_store.files import read_json
from user_error import UserError

LARGEST_NUM_MAPS = 4096
RUN_SETTINGS_FILE = "settings.json"
# These change where a run computes, how long it lasts or who watches, but not what its steps so far would have been.
CHANGEABLE_WHEN_RESUMED = (
    "env.maps_dir", "rollout.vectorization", "rollout.num_workers", "train.total_agent_steps", "train.device",
    "train.num_checkpoints", "wandb.project", "wandb.entity", "wandb.mode",
)  # fmt: skip
_OVERRIDES = ("agents", "debug")


def _number(value: object) -> object:
    """YAML 1.1 reads `1e-4` and `3e7` as strings and would let `true` pass for 1: read the first, refuse the second."""
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, str):
        number = float(value.replace("_", ""))
        return int(number) if number.is_integer() and math.isfinite(number) else number
    return value


def _ray_address(value: object) -> object:
    if not re.fullmatch(r"local|auto|[^\s:/]+:[0-9]+", str(value)):
        raise ValueError("must be local, auto or HOST:PORT")
    return value


Count = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Positive = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
PositiveReal = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
NonNegativeReal = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]

Syllabus = Literal["none", "domain_randomization", "learning_progress", "prioritized_level_replay"]

_STRICT = ConfigDict(extra="forbid")


class _OneLineErrors:
    """Turns the first failed check of a settings class into one line, wherever the values came from."""

    section: ClassVar[str] = ""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, build: Callable[[Any], Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            raise UserError(_describe(error, cls)) from None


@dataclass(frozen=True, config=_STRICT)
class EnvironmentSettings(_OneLineErrors):
    """The world: Neural MMO with all systems but communication."""

    section: ClassVar[str] = "env"

    num_agents: Positive = 128
    """Agents that spawn in one world."""
    num_npcs: Count = 256
    """Non-player characters in one world."""
    map_size: Annotated[int, BeforeValidator(_number), Field(ge=32, le=1024, multiple_of=8)] = 128
    """Side of the square that agents can walk on, in tiles; a multiple of 8, from 32."""
    num_maps: Annotated[int, BeforeValidator(_number), Field(ge=1, le=LARGEST_NUM_MAPS)] = 256
    """Different maps, generated once and shared by all runs that need the same ones."""
    map_seed: Count = 0
    """Seed of the maps; another seed gives maps that no policy trained on this one has seen."""
    horizon: Positive = 1024
    """Ticks after which an episode ends."""
    spawn_immunity: Count = 20
    """Ticks for which a newly spawned agent cannot be attacked by players."""
    resilient_population: Fraction = 0.2
    """Share of agents that starve at half the rate, so that training sees later parts of the game too."""
    early_stop_agents: Count = 8
    """An episode ends once this many agents or fewer are left; 0 plays on to the last."""
    mask_intrinsics: Literal["off", "own", "strict"] = "off"
    """Withhold from the policy its own agent's health, food and water (own, which is also what the option alone
    means); strict: also what tells of them indirectly: damage and attacker, the tick, all ages and fights' ticks."""
    relative_position: bool = False
    """Show the policy positions relative to its agent instead of those on the map."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""


@dataclass(frozen=True, config=_STRICT)
class TaskSettings(_OneLineErrors):
    """What agents are asked to do, and how the policy is told."""

    section: ClassVar[str] = "task"

    curriculum: Annotated[str, tyro.conf.arg(aliases=["-c", "--curriculum"])] = "training"
    """Tasks that are drawn for each agent at the start of each episode. training: a broad mix; evaluation: the 63
    held-out tasks that policies are scored on; survival: nothing but staying alive; or a YAML file of your own."""
    only: Annotated[str | None, tyro.conf.arg(aliases=["-t", "--task"])] = None
    """Give every agent this one task of the curriculum: its number, its name, or a part that no other name has."""
    syllabus: Annotated[Syllabus, tyro.conf.arg(aliases=["--syllabus"])] = "none"
    """How often each task is drawn as training goes on. none: by the curriculum's fixed weights; the others are
    algorithms of the library Syllabus: all tasks alike, those whose success changes (learning_progress, which is also
    what the option alone means), or those whose value is hard to foretell."""
    encoder: Literal["structural", "language-model"] = "structural"
    """What turns a task into numbers: its structure, which needs no download, or a language model that reads it."""
    language_model: str = "Qwen/Qwen2.5-Coder-0.5B"
    """Language model that reads tasks: a name on the Hugging Face hub, or a folder that holds one."""
    language_model_revision: str | None = None
    """Commit of the model on the hub, or hash of its folder; none takes the newest, and notes which that was."""
    embeddings_dir: Path = Path("task_embeddings")
    """Folder that keeps what language models made of tasks."""
    embedding_size: Annotated[int, BeforeValidator(_number), Field(ge=8, le=4096)] = 128
    """Numbers that describe a task to the policy."""


@dataclass(frozen=True, config=_STRICT)
class RewardSettings(_OneLineErrors):
    """What agents are paid for; by default as their own `RewardWrapper` has it."""

    section: ClassVar[str] = "reward"

    task_coef: NonNegativeReal = 1
    """Weight of the task's reward."""
    bonus_coef: NonNegativeReal = 1
    """Weight of what the agent's own reward adds to the task's; 0 leaves it out."""
    hp_coef: NonNegativeReal = 0
    """Paid for each change of health, as a share of full health; dying costs what was left of it."""
    drive_coef: NonNegativeReal = 0
    """Paid for each reduction of the drive, the distance of health, food and water from full (0 to 1.73)."""


@dataclass(frozen=True, config=_STRICT)
class PolicySettings(_OneLineErrors):
    """Size of the network."""

    section: ClassVar[str] = "policy"

    hidden_size: Positive = 256
    """Units of each encoder's output, of the LSTM and of the tensor that the action heads read."""
    lstm_layers: Count = 1
    """Layers of the LSTM; 0 makes a feed-forward policy."""


@dataclass(frozen=True, config=_STRICT)
class RolloutSettings(_OneLineErrors):
    """How many worlds run side by side, and in which processes."""

    section: ClassVar[str] = "rollout"

    num_envs: Positive = 8
    """Worlds that run side by side."""
    vectorization: Annotated[
        Literal["auto", "serial", "multiprocessing", "ray"], tyro.conf.arg(aliases=["--vectorization"])
    ] = "auto"
    """serial: all worlds in this process; multiprocessing: spread over worker processes, each of which keeps a core
    busy; ray: over worker processes on a Ray cluster; auto: multiprocessing where there are at least four cores.
    Results are equal."""
    num_workers: Count = 0
    """Worker processes with multiprocessing or ray; 0 takes the largest divisor of num_envs that the cores allow."""
    ray_address: Annotated[str, BeforeValidator(_ray_address)] = "local"
    """With ray: local starts a cluster on this machine for the run; auto finds the one that this machine belongs to;
    HOST:PORT is the address of a head node."""


@dataclass(frozen=True, config=_STRICT)
class TrainSettings(_OneLineErrors):
    """Proximal policy optimisation (PPO)."""

    section: ClassVar[str] = "train"

    total_agent_steps: Positive = 10_000_000
    """Decisions of living agents to train on."""
    seed: Count = 1
    """Seed of weights, sampling, minibatches, maps drawn and tasks drawn."""
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(aliases=["--device"])] = "auto"
    """Where the network lives; auto takes a GPU if there is one."""
    batch_size: Positive = 32_768
    """Agent-steps collected before each update (at least: the last tick is always finished)."""
    minibatch_rows: Positive = 128
    """Segments in one minibatch."""
    bptt_horizon: Positive = 8
    """Longest segment, in ticks, that gradients flow through."""
    update_epochs: Positive = 3
    """Passes over each batch."""
    learning_rate: PositiveReal = 1.5e-4
    """Adam's step size at the start."""
    anneal_learning_rate: bool = True
    """Whether the step size falls linearly to zero at the last agent-step."""
    gamma: Fraction = 0.99
    """Discount per tick."""
    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation."""
    clip_coefficient: PositiveReal = 0.1
    """PPO's clipping range of the probability ratio."""
    value_clip: PositiveReal = 0.1
    """Clipping range of the value estimate around its old value."""
    entropy_coefficient: NonNegativeReal = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: NonNegativeReal = 0.5
    """Weight of the value loss."""
    max_gradient_norm: PositiveReal = 0.5
    """Gradients are scaled down to this norm."""
    normalize_advantage: bool = True
    """Whether advantages are standardised in each minibatch."""
    num_checkpoints: Positive = 4
    """Evenly spaced checkpoints kept beside the untrained one; the last is the trained policy."""


@dataclass(frozen=True, config=_STRICT)
class WandbSettings(_OneLineErrors):
    """Mirror of the local metrics on Weights & Biases."""

    section: ClassVar[str] = "wandb"

    project: str = "nmmo-interpretability"
    """Project that runs appear under."""
    entity: str | None = None
    """User or team; none takes your default."""
    mode: Literal["online", "offline"] = "online"
    """offline writes files that `wandb sync` uploads later."""


@dataclass(frozen=True, config=_STRICT)
class Settings(_OneLineErrors):
    """All sections."""

    env: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    wandb: WandbSettings = field(default_factory=WandbSettings)


def load_settings(path: Path, agent: str, debug: bool = False) -> Settings:
    """Read config.yaml, let the agent's own section and (if asked) the `debug` section override it, and check it.

    Raises:
        UserError: the file is missing or not YAML, a key is unknown, or a value is of the wrong type or impossible;
            the message names the key, the value and what is allowed.
    """
    content = _read_yaml(path)
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
    """Return the agent and the settings of the run in a folder.

    Raises:
        UserError: there is no run, or its settings are damaged or of another version.
    """
    path = folder / RUN_SETTINGS_FILE
    if not path.exists():
        raise UserError(f"{folder} holds no run to resume: it lacks {RUN_SETTINGS_FILE}")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("agent"), str):
        raise UserError(f"{path} does not name the agent: it is damaged or not the file it claims to be")
    try:
        return content["agent"], TypeAdapter(Settings).validate_python(content.get("settings"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def check_training(settings: Settings) -> None:
    """Refuse combinations that cannot work, before anything expensive starts.

    Raises:
        UserError: names both values.
    """
    train, env = settings.train, settings.env
    minibatch = train.minibatch_rows * train.bptt_horizon
    if train.batch_size % minibatch:
        raise UserError(
            f"train.batch_size {train.batch_size} must be a multiple of train.minibatch_rows x train.bptt_horizon = "
            f"{train.minibatch_rows} x {train.bptt_horizon} = {minibatch}"
        )
    if train.total_agent_steps < train.batch_size:
        raise UserError(
            f"train.total_agent_steps {train.total_agent_steps} is less than one batch "
            f"(train.batch_size {train.batch_size}): nothing would be learnt"
        )
    if env.early_stop_agents >= env.num_agents:
        raise UserError(
            f"env.early_stop_agents {env.early_stop_agents} must be less than env.num_agents {env.num_agents}: "
            "every episode would end at once"
        )
    if settings.task.syllabus != "none" and importlib.util.find_spec("syllabus") is None:
        raise UserError(
            f"--syllabus {settings.task.syllabus} needs the library Syllabus: install it with `make setup-all` or "
            "`uv sync --inexact --extra curricula`"
        )
    check_workers(settings.rollout)


def check_resumed(before: Settings, now: Settings) -> None:
    """Refuse to go on with a run under settings that would make it another run.

    Raises:
        UserError: names the setting that was changed, with both values.
    """
    for section in fields(Settings):
        for setting in fields(getattr(before, section.name)):
            name = f"{section.name}.{setting.name}"
            was, is_now = (getattr(getattr(each, section.name), setting.name) for each in (before, now))
            if was != is_now and name not in CHANGEABLE_WHEN_RESUMED:
                raise UserError(
                    f"--resume: {name} was {was} and cannot become {is_now}; "
                    f"what may change: {', '.join(CHANGEABLE_WHEN_RESUMED)}"
                )


def check_workers(rollout: RolloutSettings) -> None:
    """Refuse a number of workers that cannot share the environments evenly.

    Raises:
        UserError: names both numbers.
    """
    if rollout.num_workers and rollout.num_envs % rollout.num_workers:
        raise UserError(
            f"rollout.num_envs {rollout.num_envs} must be a multiple of rollout.num_workers {rollout.num_workers}"
        )


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; pass --config with the path of a settings file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    return _mapping(content, "the file", path)


def _mapping(value: object, what: str, path: Path) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path}: {what} must hold settings as `key: value` lines, not {value!r}")
    return {str(key): entry for key, entry in value.items()}


def _describe(error: ValidationError, kind: type) -> str:
    """Say what the first failure is about: the key, its value, and what is allowed."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in (getattr(kind, "section", ""), *first["loc"]) if part != "")
    if first["type"] == "unexpected_keyword_argument":
        return f"unknown setting {key}; known here: {', '.join(sorted(entry.name for entry in fields(kind)))}"
    return f"{key} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
