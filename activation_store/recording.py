"""What an extraction records, by the names of `--record`, and the command that records a dump again with more."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from activation_store.layers import ACTION_DECODER, STATES, UNTRAINED, is_layer, layer_names
from activation_store.schema import DumpMetadata, Format
from common.argument_checks import did_you_mean
from common.user_error import UserError

Record = Literal["activations", "standard", "everything"]

SEEN_FIELDS = ("Market", "Task", "ActionTargets")
"""Optional fields without which the policy cannot be run again on what it saw."""
FIELDS = (*SEEN_FIELDS, "Logits")
PLACE = "place"
"""In `environment`, of a policy that shared its world: its place among those that were named, if it was not the first.
The world is that of the first one, and who plays which agents follows from the order."""

_FOLDER = Path("activation_data")
_SEED = 1
_CHECKPOINT_DIGITS = 10
_OF_CHECKPOINT = re.compile(r"steps_(\d+)_")
"""Begins the names of layers of a checkpoint that watched the policy."""


@dataclass(frozen=True)
class Recording:
    """What one name of `--record` stands for."""

    layers: tuple[str, ...]
    fields: tuple[str, ...]
    untrained_twin: bool  # also the memory of an untrained network, of policies that have a memory
    format: Format
    episodes: int


RECORDINGS: dict[Record, Recording] = {
    "activations": Recording((ACTION_DECODER,), (), untrained_twin=False, format="json", episodes=4),
    "standard": Recording(("all",), SEEN_FIELDS, untrained_twin=True, format="parquet", episodes=8),
    "everything": Recording(("all",), FIELDS, untrained_twin=True, format="parquet", episodes=8),
}


def record_again(folder: Path, metadata: DumpMetadata) -> str:
    """Return what to do about something that a dump lacks: the command that records its policy again, beside it.

    The command plays as the dump was played: the same episodes, tasks and rules.
    """
    if "intervention" in metadata.environment:
        return "it was played with an edit: give intervene.py --record all"
    if metadata.origin != "game":
        return "it holds simulated lives, which have no more: give a dump of the game"
    name = f"{folder.resolve().name}-standard"
    if metadata.environment.get("opponents"):
        name = "standard"  # each of several dumps is named after its policy as well
    usual = RECORDINGS["standard"]
    how = ["--record", "standard", *_options([("-n", max(_episodes(metadata), usual.episodes), usual.episodes)])]
    return f"record it with `{shlex.join([*_command(folder, metadata, how), '--name', name])}`"


def command_of_dump(folder: Path, metadata: DumpMetadata) -> str:
    """Return a command that records what a dump holds, as far as its metadata say how it was recorded.

    Of a dump that was imported, or that `intervene.py` recorded, it is "".
    """
    if metadata.seed is None or "intervention" in metadata.environment:
        return ""
    how = ["-n", str(_episodes(metadata)), "--layers", ",".join(name for name in metadata.layers if is_layer(name))]
    if any(name.startswith(f"{UNTRAINED}_") for name in metadata.layers):
        how.append("--untrained-twin")
    if steps := dict.fromkeys(match[1] for name in metadata.layers if (match := _OF_CHECKPOINT.match(name))):
        how += ["--shadow-networks", ",".join(steps)]
    held = ("Market" in metadata.tables, *(column in metadata.columns for column in ("task", "legal", "logits")))
    if fields := [name for name, there in zip(FIELDS, held, strict=True) if there]:
        how += ["--fields", ",".join(fields)]
    if metadata.format != "json":
        how += ["--format", metadata.format]
    if metadata.precision != "float32":
        how += ["--precision", metadata.precision]
    name = [] if folder.resolve().name == metadata.policy else ["--name", folder.resolve().name]
    return shlex.join([*_command(folder, metadata, how), *name])


def _episodes(metadata: DumpMetadata) -> int:
    """Return how many episodes to play so that those of a dump are among them: a sample may hold only later ones."""
    last = max((number for of in metadata.episodes if type(number := of.get("episode")) is int), default=-1)
    return max(len(metadata.episodes), last + 1)


def check_recorded(folder: Path, metadata: DumpMetadata, layer: str) -> None:
    """Refuse a layer that a dump does not hold.

    Raises:
        UserError: names the layers that it holds, and the one that may be meant or the command that records all.
    """
    if layer in metadata.layers:
        return
    known = _has(metadata, layer.removeprefix(f"{UNTRAINED}_"))
    more = f"; {record_again(folder, metadata)}" if known else did_you_mean(layer, metadata.layers)
    raise UserError(f"{folder} holds no layer {layer!r}, only: {', '.join(metadata.layers)}{more}")


def _has(metadata: DumpMetadata, layer: str) -> bool:
    """Whether the policy of a dump has a layer, as far as the dump says what its memory is."""
    memory = metadata.environment.get("memory")
    if not isinstance(memory, dict) or memory.get("cell") not in STATES:
        return is_layer(layer)
    return layer in layer_names(int(memory.get("layers", 1)), memory["cell"], codebook=True)


def _command(folder: Path, metadata: DumpMetadata, how: list[str]) -> list[str]:
    """Return the command that plays as a dump was played, and records what `how` says."""
    world = metadata.environment
    policy, _, steps = metadata.policy.rpartition("_")
    checkpoint = bool(policy) and steps.isdecimal() and len(steps) == _CHECKPOINT_DIGITS
    others = [str(other) for other in world.get("opponents") or ()]
    place = world.get(PLACE, 0)
    names = [*others[:place], metadata.policy, *others[place:]]
    if checkpoint:
        names = [name.removesuffix(f"_{steps}") for name in names]
    command = ["python", "extract_activations.py", "pvp" if others else "pve", "-p", ",".join(names)]
    if checkpoint:
        command += ["--checkpoint", str(int(steps))]
    original = world.get("protocol") == "original"
    task = world.get("task") if isinstance(world.get("task"), dict) else {}
    assert isinstance(task, dict)
    further: list[tuple[str, object, object]] = [
        ("--seed", metadata.seed, _SEED),
        ("--max-steps", world.get("most_ticks"), None),
        ("--map-seed", None if original else world.get("map_seed"), None),
        ("--food-regrowth", world.get("food_regrowth"), None),
        ("--random-actions", world.get("random_actions"), 0),
        ("--curriculum", task.get("curriculum"), "evaluation" if original else None),
        ("--task", task.get("only"), None),
        ("--task.embeddings", task.get("embeddings"), None),
        ("--protocol", world.get("protocol"), "toolkit"),
        ("-o", folder.parent, _FOLDER),
    ]
    return [*command, *how, *_options(further)]


def _options(chosen: list[tuple[str, object, object]]) -> list[str]:
    return [word for option, value, usual in chosen if value not in (None, usual) for word in (option, str(value))]


# Measured on dumps of trained policies, without activations: vitals, neighbours, tiles, actions, probabilities.
_OTHER_BYTES = {"json": 3500, "parquet": 120}
# One number of an activation: as text with its comma, or compressed, which saves little.
_NUMBER_BYTES = {("json", "float32"): 12.0, ("parquet", "float32"): 3.5, ("parquet", "float16"): 1.75}
_COLUMN_BYTES = {"json": 8, "parquet": 2}


def expected_record_bytes(metadata: DumpMetadata) -> int:
    """Return the bytes that a record will take on disk, accurate to about a third."""
    numbers = sum(metadata.layers.values())
    columns = sum(column.width or 1 for column in metadata.columns.values())
    form = metadata.format
    layers = round(numbers * _NUMBER_BYTES[form, metadata.precision])
    return _OTHER_BYTES[form] + layers + columns * _COLUMN_BYTES[form]
