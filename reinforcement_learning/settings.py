"""Every setting of a run, with its meaning, unit and allowed values.

Precedence, weakest first: the defaults below, config.yaml, the agent's own section of config.yaml, its `debug`
section when debugging, the command line.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
import tyro
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from activation_store.layers import MemoryCell
from agent_zoo import Network
from agent_zoo.agent_settings import BETA, FULL_RADIUS, MOST_CODES, PAIRWISE_WEIGHT, Feed, RewardRules
from common.argument_checks import FASTEST_REGROWTH, MOST_MAP_SEED
from common.ray_cluster import RAY_ADDRESSES, is_ray_address
from common.user_error import UserError
from common.yaml_file import one_line, shown

LARGEST_NUM_MAPS = 4096
AMMUNITION_DAMAGE = 5
"""The game's own."""
_RULES = tuple(rule.name for rule in fields(RewardRules) if rule.name != "as_published")
_LARGEST_COUNT = 2**63 - 1  # what arrays and generators of random numbers take
_MOST_AGENTS, _MOST_NPCS, _MOST_WORLDS, _MOST_UNITS, _MOST_LAYERS = 1024, 8192, 4096, 8192, 16
"""More than any machine plays or learns in a reasonable time; far more would only fill its memory."""


def _number(value: object) -> object:
    """Convert `1e-4` and `3e7`, which YAML 1.1 reads as strings, and refuse `true`, which would pass for 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    if isinstance(value, str):
        number = float(value.replace("_", ""))
        return int(number) if number.is_integer() and math.isfinite(number) else number
    return value


def _ray_address(value: object) -> object:
    if not is_ray_address(str(value)):
        raise ValueError(f"must be {RAY_ADDRESSES}")
    return value


def _kernel(value: object) -> object:
    parts = [str(part).strip() for part in (value if isinstance(value, list | tuple) else str(value).split(","))]
    if not all(part.isdecimal() for part in parts) or "0" not in parts:
        raise ValueError("must be numbers separated by commas, with 0 for the learner, such as 0,0,0,1")
    return ",".join(parts)


def _codes(value: object) -> object:
    number = _number(value)
    if isinstance(number, int) and number != 0 and not 2 <= number <= MOST_CODES:
        raise ValueError(f"must be 2 to {MOST_CODES}, or 0 for a policy without a codebook")
    return number


_LONGEST_EPISODE = 32_766  # ticks: the game counts them in 16 bits
Count = Annotated[int, BeforeValidator(_number), Field(ge=0, le=_LARGEST_COUNT)]
Positive = Annotated[int, BeforeValidator(_number), Field(ge=1, le=_LARGEST_COUNT)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
PositiveReal = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
NonNegativeReal = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
OptionalPositive = Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(_number)]
OptionalCount = Annotated[Annotated[int, Field(ge=0, le=_LARGEST_COUNT)] | None, BeforeValidator(_number)]
Weight = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, BeforeValidator(_number)]

Syllabus = Literal["none", "domain_randomization", "learning_progress", "prioritized_level_replay"]

_STRICT = ConfigDict(extra="forbid")


class _OneLineErrors:
    """Reports the first failed check of a settings class in one line, wherever the values came from."""

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, build: Callable[[Any], Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            raise UserError(_describe(error, cls)) from None


@dataclass(frozen=True, config=_STRICT)
class EnvironmentSettings(_OneLineErrors):
    """The world: Neural MMO with all its systems except communication."""

    num_agents: Annotated[int, BeforeValidator(_number), Field(ge=1, le=_MOST_AGENTS)] = 128
    """Number of agents that spawn in each world, 1 to 1024."""
    num_npcs: Annotated[int, BeforeValidator(_number), Field(ge=0, le=_MOST_NPCS)] = 256
    """Number of non-player characters in each world, 0 to 8192."""
    map_size: Annotated[int, BeforeValidator(_number), Field(ge=32, le=1024, multiple_of=8)] = 128
    """Side of the square area that agents can walk on, in tiles: a multiple of 8, 32 to 1024."""
    num_maps: Annotated[int, BeforeValidator(_number), Field(ge=1, le=LARGEST_NUM_MAPS)] = 256
    """Number of different maps, 1 to 4096; generated once and shared by all runs with the same map settings."""
    map_seed: Annotated[int, BeforeValidator(_number), Field(ge=0, le=MOST_MAP_SEED)] = 0
    """Seed of the maps; a different seed gives maps unseen in training."""
    horizon: Annotated[int, BeforeValidator(_number), Field(ge=1, le=_LONGEST_EPISODE)] = 1024
    """Maximum length of an episode in ticks."""
    spawn_immunity: Count = 20
    """Number of ticks during which a newly spawned agent cannot be attacked by players."""
    resilient_population: Fraction = 0.2
    """Share of agents (0 to 1) that starve at half the rate, so that training covers later parts of the game."""
    early_stop_agents: Count = 8
    """An episode ends once at most this many agents are left; 0: when none is left."""
    mask_intrinsics: Literal["off", "own", "strict"] = "off"
    """Hide variables from the policy. own (also the meaning of the option without a value): its agent's health, food
    and water; strict: also what reveals them indirectly: damage, attacker, tick, and all ages and combat ticks."""
    relative_position: bool = False
    """Show the policy positions relative to its agent instead of absolute positions."""
    view_radius: Annotated[int, BeforeValidator(_number), Field(ge=1, le=FULL_RADIUS)] = FULL_RADIUS
    """How far the policy sees, in tiles in each direction, 1 to 7: farther tiles read void, and farther entities are
    absent and cannot be chosen as targets. Attacks reach 3 tiles, so from 3 on no legal attack is lost."""
    narrow_from: Count = 0
    """Tick of a life from which on the policy sees only so far; until then it sees the whole view."""
    task_shown_for: Annotated[OptionalCount, tyro.conf.arg(aliases=["--task.shown-for"])] = None
    """Number of ticks, from the start of a life, in which the policy is shown its task; afterwards the task's embedding
    is all zeros. By default it is always shown."""
    interrupt: Annotated[OptionalCount, tyro.conf.arg(aliases=["--task.interrupt"])] = None
    """Tick in which every living agent is moved to a place drawn at random from the whole map, so that neither its
    place nor its latest moves tell where it was going. The ways of two_ways, four_ways and to_water begin there, and
    nothing is paid for them before. With to_water the place has water in view, but at least six steps away, if there is
    such a place. By default nobody is moved."""
    food_regrowth: Annotated[float, BeforeValidator(_number), Field(ge=0, le=FASTEST_REGROWTH, allow_inf_nan=False)] = 1
    """How fast eaten food grows back, as a multiple of the game's rate (a tile does so in 1 of 40 ticks on average),
    0 to 40; 0: never."""
    water: Annotated[float, BeforeValidator(_number), Field(ge=0, le=0.7)] = 0.3
    """How much water maps have: the height of the terrain, 0 to 0.7, up to which there is water. The game's 0.3 covers
    22 of 100 tiles, and it is 1.2 steps to water on average; 0.05 covers 3 of 100, and it is 4.5 steps."""
    death_fog_tick: OptionalCount = None
    """Tick from which a deadly fog closes in from the edges, one tile a tick, up to 8 tiles from the centre; by default
    there is none. Evaluations and recordings play without, unless they ask for it."""
    flip_terrain: bool = False
    """Whether the terrain's seeds are negated, as for the maps of the published evaluations."""
    ammunition_damage: Count = AMMUNITION_DAMAGE
    """Damage of ammunition before the 10 of each level are added. The published agents played with 0."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""


@dataclass(frozen=True, config=_STRICT)
class TaskSettings(_OneLineErrors):
    """The tasks that agents are given, and how the policy perceives them."""

    curriculum: Annotated[str, tyro.conf.arg(aliases=["-c", "--curriculum"])] = "training"
    """Tasks to draw from for each agent at the start of each episode. training: a broad mix; evaluation: the 63
    held-out tasks that policies are scored on; survival: only staying alive; two_ways, four_ways: going to a side of
    the map, which one differs from agent to agent; to_water: going to the nearest water; or the path of a YAML file."""
    only: Annotated[str | None, tyro.conf.arg(aliases=["-t", "--task", "--task-to-assign"])] = None
    """Give every agent this one task of the curriculum: its number, its name, or a part of its name that is unique."""
    syllabus: Annotated[Syllabus, tyro.conf.arg(aliases=["--syllabus"])] = "none"
    """How often each task is drawn during training. none: by the fixed weights of the curriculum. The others are
    algorithms of the library Syllabus: domain_randomization draws all tasks equally often, learning_progress (also the
    meaning of the option without a value) prefers tasks whose success rate is changing, and prioritized_level_replay
    prefers tasks whose value is hard to predict."""
    encoder: Literal["structural", "language-model", "file"] = "structural"
    """How tasks are embedded: structural encodes their structure (no download); language-model reads their text; file
    takes them from --task.embeddings."""
    language_model: str = "Qwen/Qwen2.5-Coder-0.5B"
    """Language model for task embeddings: its name on the Hugging Face Hub, or a local folder."""
    language_model_revision: str | None = None
    """Commit of the model on the Hub, or hash of its folder; by default the newest, which is then recorded."""
    embeddings_dir: Path = Path("task_embeddings")
    """Cache folder for task embeddings computed by language models; files of embeddings are looked for here, too."""
    embeddings: str | None = None
    """File of task embeddings for the encoder file; import_policy.py makes one of the original's curricula."""
    embeddings_sha256: str | None = None
    """Hash of that file; by default it is the file's, which is then recorded."""
    embedding_size: Annotated[int, BeforeValidator(_number), Field(ge=8, le=4096)] = 128
    """Length of the task embedding that the policy receives, 8 to 4096."""


def older_rewards(reward: Mapping[str, Any]) -> dict[str, Any]:
    """Complete settings of rewards that may be older than `as_published`."""
    return {"as_published": False} | dict(reward)


@dataclass(frozen=True, config=_STRICT)
class RewardSettings(_OneLineErrors):
    """The reward. The weights of what an agent is paid beyond its task, and what it may not do, are by default its own:
    those of its `RewardWrapper`."""

    task_coef: NonNegativeReal = 1
    """Weight of the task reward."""
    bonus_coef: NonNegativeReal = 1
    """Weight of the agent's own additional reward; 0 disables it."""
    hp_coef: NonNegativeReal = 0
    """Weight of each change in health, as a fraction of full health; death costs the remaining health."""
    drive_coef: NonNegativeReal = 0
    """Weight of each reduction of the drive: the distance of health, food and water from full (0 to 1.73)."""
    heal: Weight = None
    """Paid in each tick that restored health."""
    explore: Weight = None
    """Paid for each event of a kind that is new to the life, and for each kill and each sale, at most 3 a tick."""
    hp: Weight = None
    """Paid for each point of health gained; taken for each lost."""
    experience: Weight = None
    """Paid for each point by which the largest experience of all skills grew."""
    defence: Weight = None
    """Paid in every tick for each 15 points of the mean defence over melee, range and mage."""
    attack: Weight = None
    """Paid for each point of damage inflicted."""
    gold: Weight = None
    """Paid for each coin gained; taken for each lost."""
    scale: Weight = None
    """Factor of the sum of hp, experience, defence, attack and gold."""
    disable_give: bool | None = None
    """Whether giving items or gold to others is illegal."""
    spare_dangerous_npcs: bool | None = None
    """Whether attacking NPCs that fight back, neutral and aggressive ones, is illegal."""
    as_published: bool = True
    """Whether rewards and restrictions follow the published agents; False: as in this toolkit before, for policies
    that were trained then. docs/training.md says what differs."""

    @staticmethod
    def of_header(reward: Mapping[str, Any]) -> "RewardSettings":
        """Return a header's settings, by default those before `as_published` (UserError: one is impossible)."""
        return RewardSettings(**older_rewards(reward))

    def to_header(self) -> dict[str, int | float | bool]:
        """Return what is set, for a policy's header."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def chosen_rules(self) -> dict[str, float | bool]:
        """The weights and restrictions that are not left to the agent."""
        return {name: value for name in _RULES if (value := getattr(self, name)) is not None}

    @property
    def adds_to_agent(self) -> bool:
        """Whether anything is paid besides the task's and the agent's own reward, or these are weighted."""
        return (self.task_coef, self.bonus_coef, self.hp_coef, self.drive_coef) != (1, 1, 0, 0)


@dataclass(frozen=True, config=_STRICT)
class PolicySettings(_OneLineErrors):
    """Size of the network, and its memory."""

    hidden_size: Annotated[int, BeforeValidator(_number), Field(ge=1, le=_MOST_UNITS)] = 256
    """Number of units in each encoder's output, the memory and the input of the action heads, 1 to 8192."""
    lstm_layers: Annotated[int, BeforeValidator(_number), Field(ge=0, le=_MOST_LAYERS)] = 1
    """Number of layers of the memory, whatever its cell, up to 16; 0 gives a feed-forward policy."""
    cell: MemoryCell = "lstm"
    """Cell of the memory. lstm: long short-term memory; gru: gated recurrent unit; ema: exponential moving averages,
    without gates, whose time constants are learnt and start between 2 and 128 ticks."""
    network: Network = "published"
    """published: computes what the original agent computed; earlier: the network of this toolkit's first policies,
    which resembles it. Agents of your own have only one, unless they export EarlierPolicy."""


@dataclass(frozen=True, config=_STRICT)
class RolloutSettings(_OneLineErrors):
    """How many worlds run in parallel, and in which processes."""

    num_envs: Annotated[int, BeforeValidator(_number), Field(ge=1, le=_MOST_WORLDS)] = 8
    """Number of worlds that run in parallel, 1 to 4096. A resumed run may have another number, whose worlds begin new
    episodes."""
    vectorization: Annotated[
        Literal["auto", "serial", "multiprocessing", "ray"], tyro.conf.arg(aliases=["--vectorization"])
    ] = "auto"
    """serial: all worlds in this process; multiprocessing: in worker processes, one core each; ray: in worker processes
    on a Ray cluster; auto: multiprocessing with at least two cores, otherwise serial. The results are the same."""
    num_workers: Count = 0
    """Worker processes for multiprocessing or ray: a divisor of num_envs, and where num_envs is even, an even one.
    0: as many as the cores allow."""
    ray_address: Annotated[str, BeforeValidator(_ray_address)] = "local"
    """Cluster for ray: local starts one on this machine for the run; auto uses the one that this machine belongs to;
    HOST:PORT is the address of a head node."""

    @property
    def groups(self) -> int:
        """Groups of worlds that play by turns: while one plays, the policy decides for the other."""
        return 2 if self.num_envs % 2 == 0 else 1


@dataclass(frozen=True, config=_STRICT)
class TrainSettings(_OneLineErrors):
    """Proximal policy optimisation (PPO)."""

    total_agent_steps: Positive = 10_000_000
    """Length of the training run in agent-steps: decisions of living agents."""
    seed: Count = 1
    """Seed of the weights, action sampling, minibatches, and the choice of maps and tasks."""
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(aliases=["--device"])] = "auto"
    """Where the network runs; auto uses a GPU if there is one."""
    processes: Annotated[Positive, tyro.conf.arg(aliases=["--processes"])] = 1
    """Number of processes on this machine that share the worlds, each batch and each minibatch, with cores or a GPU of
    their own."""
    batch_size: Positive = 32_768
    """Minimum number of agent-steps collected before each update; the last tick is always completed."""
    minibatch_rows: Positive = 128
    """Number of segments in each minibatch."""
    bptt_horizon: Positive = 8
    """Maximum length of a segment in ticks, the range of backpropagation through time."""
    update_epochs: Positive = 3
    """Number of passes over each batch."""
    pool_kernel: Annotated[str, BeforeValidator(_kernel)] = "0"
    """Who plays the agents of each world, in turn: 0 the learner, 1, 2, ... opponents drawn from the run's earlier
    checkpoints. 0,0,0,1 gives an opponent every fourth agent; 0 trains alone. Only the learner's agent-steps count."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the encoder's products in training. bfloat16 is faster on processors that multiply it (AVX-512 BF16
    or AMX) and on GPUs. Weights, the memory, the heads and the loss stay float32."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam; or muon for the weight matrices between hidden units, and adam for the rest."""
    learning_rate: PositiveReal = 1.5e-4
    """Initial learning rate of the optimizer."""
    initialization: Literal["agent", "orthogonal"] = "agent"
    """First weights. agent: as the agent's network draws them; orthogonal: orthogonal matrices with gain sqrt(2), with
    .01 for the action heads, so that all options start nearly equally likely, and with 1 for the critic."""
    longest_memory: Annotated[Annotated[int, Field(ge=3, le=1_000_000)] | None, BeforeValidator(_number)] = None
    """Time constants of an LSTM or GRU before training: 2 ticks for its quickest unit, this many (at least 3) for its
    slowest. By default all units start without biases, as published, and lose half of their content in each tick."""
    anneal_learning_rate: bool = True
    """Whether the learning rate decays linearly to zero at the last agent-step."""
    gamma: Fraction = 0.99
    """Discount factor per tick, 0 to 1."""
    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation (GAE), 0 to 1."""
    clip_coefficient: PositiveReal = 0.1
    """PPO's clipping range of the probability ratio."""
    value_clip: PositiveReal = 0.1
    """Clipping range of the value estimate around the old estimate."""
    clip_value: bool = True
    """Whether the value estimate is clipped."""
    entropy_coefficient: NonNegativeReal = 0.01
    """Weight of the entropy bonus."""
    ignore_idle_heads: bool = False
    """Leave choices that the game ignores out of the policy's loss and entropy: the price while nothing is sold or
    given, the style of an attack on nobody, the recipient of nothing."""
    value_coefficient: NonNegativeReal = 0.5
    """Weight of the value loss."""
    max_gradient_norm: PositiveReal = 0.5
    """Maximum gradient norm; larger gradients are scaled down."""
    normalize_advantage: bool = True
    """Whether advantages are standardised in each minibatch."""
    target_kl: OptionalPositive = None
    """Mean divergence from the policy that collected the batch, in nats, above which no further pass over the batch is
    made; by default all passes are made."""
    num_checkpoints: Positive = 4
    """Number of checkpoints to keep, besides the untrained one; the last is the trained policy."""
    checkpoint_interval: Count = 0
    """Also keep a checkpoint after every this many updates; 0: none but those of num_checkpoints."""
    checkpoint_spacing: Literal["even", "doubling"] = "even"
    """even: every checkpoint has learnt from equally many agent-steps more than the one before; doubling: from twice as
    many, so that early learning, which is fast, is seen too."""

    @property
    def seats(self) -> tuple[int, ...]:
        """The kernel as numbers."""
        return tuple(map(int, self.pool_kernel.split(",")))

    @property
    def has_opponents(self) -> bool:
        """Whether anybody but the learner plays."""
        return any(self.seats)


@dataclass(frozen=True, config=_STRICT)
class SemanticSettings(_OneLineErrors):
    """A semantic plane and a codebook of skills, learnt along with the policy; off by default."""

    codes: Annotated[int, BeforeValidator(_codes)] = 0
    """Number of codes, 2 to 512; 0 trains a policy without a codebook."""
    plane_dimensions: Annotated[int, BeforeValidator(_number), Field(ge=2, le=3)] = 2
    """Dimensions of the plane that hidden states are mapped to, 2 or 3."""
    feed: Feed = "number"
    """How a code enters the action heads and the critic. number: its number divided by the number of codes is added to
    every unit of the hidden state; embedding: a learnt vector of each code is added, so that codes have no order."""
    states: Annotated[int, BeforeValidator(_number), Field(ge=16, le=8192)] = 1024
    """Maximum number of states of a minibatch in the pairwise loss, 16 to 8192; its time grows with their square. With
    fewer, the loss counts as much as with this number, so that its weight does not depend on the minibatch."""
    ticks_apart: Positive = 10
    """Minimum distance of an agent's states in the pairwise loss, in ticks, since neighbours in time are alike."""
    return_reference: PositiveReal = 1.0
    """Mean reward summed over a life at which the weight of the semantic losses reaches 1; at 0 and below it is 0."""
    pairwise_weight: NonNegativeReal = PAIRWISE_WEIGHT
    """Weight of the pairwise loss relative to the quantisation loss."""
    beta: NonNegativeReal = BETA
    """Weight of moving places to their codes relative to moving codes to places, in the quantisation loss."""


@dataclass(frozen=True, config=_STRICT)
class WandbSettings(_OneLineErrors):
    """Logging of the metrics to Weights & Biases."""

    project: str = "nmmo-interpretability"
    """Name of the project."""
    entity: str | None = None
    """User or team; by default that of your account."""
    group: str | None = None
    """Name under which runs are shown together."""
    mode: Literal["online", "offline"] = "online"
    """online uploads during training; offline writes files that `wandb sync` can upload later."""


@dataclass(frozen=True, config=_STRICT)
class Settings(_OneLineErrors):
    """All sections."""

    env: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    task: TaskSettings = field(default_factory=TaskSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    semantic: SemanticSettings = field(default_factory=SemanticSettings)
    wandb: WandbSettings = field(default_factory=WandbSettings)


def plain_settings(settings: Settings) -> dict[str, Any]:
    """Return all settings as JSON and YAML hold them."""
    content: dict[str, Any] = orjson.loads(orjson.dumps(asdict(settings), default=str))
    return content


def task_record(task: TaskSettings) -> dict[str, Any]:
    """Return the settings of tasks as checkpoints and results say them: without the folder of embeddings, and without
    the file of embeddings where there is none, as before there were any.
    """
    left_out = {"embeddings_dir"} | {name for name in ("embeddings", "embeddings_sha256") if not getattr(task, name)}
    return {name: value for name, value in asdict(task).items() if name not in left_out}


def _describe(error: ValidationError, kind: type) -> str:
    """Describe the first failure: the key, its value, and the allowed values."""
    first = error.errors()[0]
    sections = [section.name for section in fields(Settings) if section.type is kind]
    key = one_line(".".join(str(part) for part in (*sections, *first["loc"]) if part != ""))
    if first["type"] == "unexpected_keyword_argument":
        return f"unknown setting {key}; known here: {', '.join(sorted(entry.name for entry in fields(kind)))}"
    return f"{key} = {shown(first['input'])}: {one_line(first['msg'].removeprefix('Value error, '))}"
