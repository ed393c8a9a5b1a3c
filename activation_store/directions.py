"""Directions in activations: the file format shared by the stages that find them and those that use them.

A direction reads one number out of a layer: activation @ weight + bias, on the policy's raw activations.
A file of directions contains only arrays and text; opening it never runs code.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
from pydantic import ConfigDict

from common.array_files import Kind, read_tensors, write_tensors
from common.checked_json import in_shape
from common.user_error import UserError

DIRECTIONS_FILE = "directions.safetensors"
"""Name of a run's file of directions."""

FORMAT_VERSION = 1
_KIND: Kind = "directions"
_LONGEST_NAME = 300
_SHOWN_AT_MOST = 8
_STRICT = ConfigDict(strict=True, extra="forbid")

SourceKind = Literal[
    "probe", "cluster difference", "principal component", "independent component", "non-negative component",
    "slow mode", "sparse feature", "cluster axis", "learnt subspace",
]  # fmt: skip
"""How a direction was found; a new method needs a new entry here."""


@dataclass(frozen=True)
class Source:
    """Where a direction comes from."""

    __pydantic_config__ = _STRICT

    kind: SourceKind
    run: str  # name of the folder of the run that found it
    dump: str  # name of the folder of the dump that it was fitted on
    policy: str  # whose activations the dump holds
    checkpoint_sha256: str | None  # of the policy's checkpoint file, 64 hexadecimal digits; None if unknown


@dataclass(frozen=True, eq=False)
class Direction:
    """One direction in the activations of one layer."""

    name: str  # unique within the file
    layer: str  # of the network, named as in dumps
    weight: np.ndarray  # of each unit's raw activation, (units,) float32, not all zero
    bias: float  # added to the weighted sum, in the read-out's unit
    unit: str
    mean: float  # of the read-out over the records that it was fitted on
    spread: float  # standard deviation of the read-out over the same records
    records: int  # that it was fitted on
    lives: int
    episodes: int
    source: Source

    def read_out(self, activations: np.ndarray) -> np.ndarray:
        """Return the read-out of raw activations, (B, units) to (B,) float64.

        Raises:
            ValueError: the activations have another number of units.
        """
        # In double precision: a unit that hardly varies may have a large weight, offset by the bias.
        return np.einsum("bu,u->b", activations, self.weight, dtype=np.float64) + self.bias

    def check_policy(self, layer_units: Mapping[str, int], policy: str, sha256: str | None) -> None:
        """Refuse a direction that does not fit a policy.

        Args:
            sha256: of its checkpoint file; None if unknown.

        Raises:
            UserError: the policy has no such layer, another number of units, or the direction is another policy's.
        """
        if self.layer not in layer_units:
            raise UserError(
                f"the direction {self.name} is one of the layer {self.layer}, which {policy} does not have; it "
                f"has {', '.join(layer_units)}"
            )
        if len(self.weight) != layer_units[self.layer]:
            raise UserError(
                f"the direction {self.name} has {len(self.weight)} weights, but {self.layer} of {policy} "
                f"has {layer_units[self.layer]} units: give the policy that it was found in"
            )
        if None not in (sha256, self.source.checkpoint_sha256) and self.source.checkpoint_sha256 != sha256:
            raise UserError(
                f"the direction {self.name} was found in another policy, {self.source.policy}, not in {policy} "
                "as it is now: extract activations and find directions again"
            )

    def faults(self) -> Iterator[str]:
        """Yield one phrase per fault; nothing if the direction is usable."""
        if not self.name or len(self.name) > _LONGEST_NAME or not self.name.isprintable():
            yield "its name is empty, too long or not printable"
        if not (self.layer and self.unit):
            yield "its layer or unit is not named"
        if self.weight.ndim != 1 or self.weight.dtype != np.float32:
            yield f"its weight has shape {self.weight.shape} and type {self.weight.dtype}, not (units,) and float32"
        if not np.isfinite([self.bias, self.mean, self.spread]).all() or not np.isfinite(self.weight).all():
            yield "it holds NaN or infinity"
        elif not self.weight.any():
            yield "its weights are all zero, so it points nowhere"
        if self.spread < 0:
            yield f"its spread is negative ({self.spread})"
        if not 1 <= self.episodes <= self.lives <= self.records:
            yield f"it counts {self.records} records, {self.lives} lives and {self.episodes} episodes"


def direction_from(
    name: str, layer: str, weight: np.ndarray, origin: np.ndarray, unit: str, activations: np.ndarray, lives: int,
    episodes: int, source: Source,
) -> Direction:  # fmt: skip
    """Return the direction with this weight whose read-out is 0 at the origin, measured on activations.

    Args:
        weight: of each unit, (units,).
        origin: a state, (units,).
        activations: that it was fitted on, (B, units).
    """
    rounded = weight.astype(np.float32)
    bias = float(-(origin @ rounded.astype(np.float64)))
    value = np.einsum("bu,u->b", activations, rounded, dtype=np.float64) + bias  # (B,)
    spread = float(value.std())
    return Direction(
        name, layer, rounded, bias, unit, float(value.mean()), spread, len(activations), lives, episodes, source
    )


@dataclass(frozen=True, eq=False)
class Directions:
    """The contents of a file of directions."""

    path: Path
    directions: tuple[Direction, ...]  # in the order in which they were written

    def __len__(self) -> int:
        return len(self.directions)

    def __iter__(self) -> Iterator[Direction]:
        return iter(self.directions)

    def named(self, name: str) -> Direction:
        """Return the direction with this name, or the only one whose name ends in `/` followed by it.

        Raises:
            UserError: there is none, or several match; the message names the closest.
        """
        by_name = {direction.name: direction for direction in self.directions}
        if name in by_name:
            return by_name[name]
        ending = [full for full in by_name if full.endswith(f"/{name}")]
        if len(ending) == 1:
            return by_name[ending[0]]
        if ending:
            raise UserError(f"{self.path} holds {len(ending)} directions {name!r}: name one of {_some(ending)}")
        endings = {"/".join(full.split("/")[i:]): full for full in by_name for i in range(full.count("/") + 1)}
        likely = difflib.get_close_matches(name, endings, n=1)
        hint = f"did you mean {likely[0]!r}?" if likely else f"it holds {_some(list(by_name))}"
        raise UserError(f"{self.path} holds no direction {name!r}: {hint}")

    def all_named(self, names: Sequence[str]) -> tuple[Direction, ...]:
        """Return the directions with these names, in their order.

        Raises:
            UserError: as `named`, or two names are of the same direction.
        """
        directions = tuple(self.named(name) for name in names)
        full = [direction.name for direction in directions]
        if twice := next((name for name in full if full.count(name) > 1), None):
            raise UserError(f"the direction {twice!r} of {self.path} is named twice")
        return directions


def write_directions(path: Path, directions: Sequence[Direction]) -> None:
    """Write directions atomically; equal directions give identical files.

    The file holds `NAME/weight`, (units,) float32, and `NAME/bias`, () float64, for each; the rest is in its header.

    Raises:
        ValueError: a direction is unusable, or two have the same name.
    """
    arrays: dict[str, np.ndarray] = {}
    described = []
    for direction in directions:
        if fault := next(direction.faults(), None):
            raise ValueError(f"direction {direction.name!r} cannot be written: {fault}")
        if f"{direction.name}/weight" in arrays:
            raise ValueError(f"two directions are called {direction.name!r}")
        arrays[f"{direction.name}/weight"] = direction.weight
        arrays[f"{direction.name}/bias"] = np.array(direction.bias, np.float64)
        rest = {name: value for name, value in vars(direction).items() if name not in ("weight", "bias")}
        first = {"name": direction.name, "layer": direction.layer, "units": len(direction.weight)}
        described.append({**first, **rest})
    header = {"kind": _KIND, "version": FORMAT_VERSION, "directions": described}
    write_tensors(path, arrays, orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY).decode(), _KIND)


def read_directions(path: Path) -> Directions:
    """Read a file of directions.

    Raises:
        UserError: the file is missing, damaged, of another kind or version, or holds an unusable direction.
    """
    arrays, text = read_tensors(path, _KIND)
    try:
        header: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        header = None
    if not isinstance(header, dict) or header.get("kind") != _KIND:
        raise UserError(
            f"{path} does not hold directions: give a {DIRECTIONS_FILE} that a run of probes or clusters wrote"
        )
    if header.get("version") != FORMAT_VERSION:
        version = str(header.get("version"))[:40]
        raise UserError(f"{path} has version {version}; this toolkit reads version {FORMAT_VERSION}: fit it again")
    described = in_shape(list[_Description], header.get("directions"), f"{path} is damaged", "fit the directions again")
    expected = {f"{entry.name}/{part}" for entry in described for part in ("weight", "bias")}
    if len(expected) < 2 * len(described) or expected != arrays.keys():
        raise UserError(f"{path} is damaged: its arrays are not those of the directions in its header; fit them again")
    directions = []
    for entry in described:
        weight, bias = arrays[f"{entry.name}/weight"], arrays[f"{entry.name}/bias"]
        if weight.shape != (entry.units,) or bias.shape != () or bias.dtype != np.float64:
            raise UserError(
                f"{path} is damaged: direction {entry.name!r} has a weight of shape {weight.shape} and a bias of shape "
                f"{bias.shape}, where {entry.units} units make ({entry.units},) and (); fit it again"
            )
        rest = {name: value for name, value in vars(entry).items() if name != "units"}
        direction = Direction(weight=weight, bias=float(bias), **rest)
        if fault := next(direction.faults(), None):
            raise UserError(f"{path}: direction {entry.name!r} cannot be used: {fault}; fit it again")
        directions.append(direction)
    return Directions(path, tuple(directions))


@dataclass(frozen=True)
class _Description:
    """A direction's entry in the header; attributes as in `Direction`, plus the number of units of its layer."""

    __pydantic_config__ = _STRICT

    name: str
    layer: str
    units: int
    unit: str
    mean: float
    spread: float
    records: int
    lives: int
    episodes: int
    source: Source


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_AT_MOST} more" if len(names) > _SHOWN_AT_MOST else ""
    return ", ".join(names[:_SHOWN_AT_MOST]) + more


Axis = Literal["row", "col"]

_NAME = re.compile(r"(?:(.*)/)?(row|col)s_in_([1-9][0-9]{0,3})_ticks")


@dataclass(frozen=True)
class PlannedDisplacement:
    """How far south or east of where it stands an agent will be some ticks later.

    Probes name their targets so, and directions end with the name of their target. Interventions along such a direction
    say whether the path bends as the direction predicts.
    """

    axis: Axis  # row, tiles to the south; or col, tiles to the east
    ticks: int
    plan: str = ""  # name of the direction before that of the target, such as masked_3M/lstm_cell; empty for a target

    @property
    def name(self) -> str:
        """The name of the target, such as rows_in_10_ticks."""
        return f"{self.axis}s_in_{self.ticks}_ticks"

    @property
    def direction(self) -> str:
        """The name of the direction, such as masked_3M/lstm_cell/rows_in_10_ticks."""
        return f"{self.plan}/{self.name}" if self.plan else self.name


def planned_displacement(name: str) -> PlannedDisplacement | None:
    """Return what the direction of that name reads; None if it is no planned displacement."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return PlannedDisplacement("row" if match[2] == "row" else "col", int(match[3]), match[1] or "")
