"""A world model in one file: its own weights, what it measured, and the policy that it holds."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from activation_store.tensor_file import Kind, read_tensors, write_tensors
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_policy
from agent_zoo.observation import ObservationLayout
from agent_zoo.tensors import as_arrays, as_tensors
from representation.world_model.actions import action_size
from representation.world_model.network import WorldNetwork
from representation.world_model.scene import SceneShape, own_columns, vital_columns
from representation.world_model.states import Bottleneck, Sizes
from representation.world_model.statistics import Statistics
from user_error import UserError

FORMAT_VERSION = 3
_KIND: Kind = "world model"


@dataclass(frozen=True)
class Origin:
    """What a world model was trained on.

    Attributes:
        dump: name of the dump's folder.
        dump_sha256: of its metadata.
        policy: name of the policy.
        policy_sha256: of the policy's checkpoint.
        seed: of the training.
        horizon: ticks predicted in a training window.
        records: predicted in training so far.
        train: episodes trained on.
        test: episodes on other maps.
        world: map_seed and map_size of the dump, which tell its maps from those of other worlds.
        train_maps: numbers of the maps trained on.
    """

    dump: str
    dump_sha256: str
    policy: str
    policy_sha256: str
    seed: int
    horizon: int
    records: int
    train: tuple[int, ...]
    test: tuple[int, ...]
    world: tuple[int, int]
    train_maps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class WorldModel:
    """A world model.

    Attributes:
        network: its own weights.
        policy: the frozen policy inside.
        info: of the policy's checkpoint.
        stats: measured on the training records.
    """

    network: WorldNetwork
    policy: RecurrentPolicy
    info: CheckpointInfo
    stats: Statistics

    @property
    def layout(self) -> ObservationLayout:
        """Of observations and actions."""
        return self.info.layout


def build(
    policy: RecurrentPolicy, info: CheckpointInfo, stats: Statistics, sizes: Sizes, kind: Bottleneck
) -> WorldModel:
    """Build an untrained world model around a policy, whose weights are frozen."""
    policy.requires_grad_(False)
    position = [own_columns(info.layout).index(name) for name in ("row", "col")] if policy.mask.absolute else None
    network = WorldNetwork(
        SceneShape.of(info.layout), sizes, action_size(info.layout), (policy.layers, policy.policy.hidden_size),
        vital_columns(info.layout), position, kind,
    )  # fmt: skip
    network.own_mean.copy_(stats.own_mean)
    network.own_step.copy_(stats.own_step)
    network.item_step.copy_(stats.item_step)
    return WorldModel(network, policy, info, stats)


def save_model(path: Path, model: WorldModel, origin: Origin) -> None:
    """Write a world model, whole or not at all."""
    arrays = {f"network/{name}": each for name, each in as_arrays(model.network.state_dict()).items()}
    arrays |= {f"policy/{name}": each for name, each in as_arrays(model.policy.state_dict()).items()}
    arrays |= {f"statistics/{name}": each for name, each in model.stats.arrays().items()}
    text = {
        "format_version": FORMAT_VERSION, "origin": asdict(origin), "policy": model.info.to_header(),
        "sizes": asdict(model.network.sizes), "bottleneck": model.network.kind,
    }  # fmt: skip
    write_tensors(path, arrays, orjson.dumps(text, option=orjson.OPT_SORT_KEYS).decode(), _KIND)


def load_model(path: Path) -> tuple[WorldModel, Origin]:
    """Read a world model, ready to run.

    Raises:
        UserError: the file is missing, damaged, of another kind or version, or does not fit this version's network.
    """
    arrays, text = read_tensors(path, _KIND)
    try:
        told: Any = orjson.loads(text)
        if told["format_version"] != FORMAT_VERSION:
            raise UserError(
                f"{path} has format version {told['format_version']!r}; this version reads {FORMAT_VERSION}"
            )
        info = CheckpointInfo.from_header(told["policy"], path)
        lists = {name: tuple(value) for name, value in told["origin"].items() if isinstance(value, list)}
        origin = Origin(**{**told["origin"], **lists})
        policy = build_policy(info)
        policy.load_state_dict(as_tensors(_part(arrays, "policy")))
        stats = Statistics.of_arrays(_part(arrays, "statistics"))
        model = build(policy.eval(), info, stats, Sizes(**told["sizes"]), told["bottleneck"])
        model.network.load_state_dict(as_tensors(_part(arrays, "network")))
    except (orjson.JSONDecodeError, RuntimeError, TypeError, ValueError, LookupError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise UserError(f"{path} does not fit this version's world model ({reason}): train it again") from None
    model.network.eval()
    return model, origin


def _part(arrays: dict[str, Any], part: str) -> dict[str, Any]:
    return {name.removeprefix(f"{part}/"): each for name, each in arrays.items() if name.startswith(f"{part}/")}
