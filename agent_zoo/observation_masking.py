"""Which parts of an observation reach a policy: its agent's vitals, position, task and distant things can be hidden.

To test whether a memory keeps track of a variable, the input must not reveal that variable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from agent_zoo.agent_settings import FULL_RADIUS, SHOWN
from agent_zoo.observation import (
    ActionHead,
    ObservationLayout,
    PackedObservation,
    PackedRows,
    legal_options,
    packed_options,
)

_VOID = 0


def narrowed(observation: PackedObservation, layout: ObservationLayout, radius: torch.Tensor) -> PackedObservation:
    """Return what is left of an observation within so many tiles in each direction; the one given stays as it is.

    Who can attack must, in the game. If all that could be attacked is out of view, doing nothing is legal again.

    Args:
        radius: of each agent, (B,) int64.
    """
    within = _within(observation, layout, radius)
    places = observation.entity.place[within]  # of the rows that are left, in the game's own table
    shown = observation.entity.take_rows(within)
    side = layout.view_side
    apart = (torch.arange(side, device=observation.material.device) - side // 2).abs()
    far = torch.maximum(apart.unsqueeze(0), apart.unsqueeze(1)).flatten() > radius.unsqueeze(1)  # (B, tiles)
    legal = list(legal_options(observation, layout).split([head.size for head in layout.heads], dim=1))
    for number, head in enumerate(layout.heads):
        if head.candidates == "entity":
            left = torch.zeros_like(legal[number])  # (B, options)
            left[shown.owner, shown.place] = legal[number][shown.owner, places]
            left[:, -1] = legal[number][:, -1] | ~left.any(dim=1)
            legal[number] = left
    return replace(
        observation,
        material=observation.material.masked_fill(far, _VOID),
        entity=shown,
        legal=packed_options(torch.cat(legal, dim=1)),
    )


def options_in_game(
    chosen: torch.Tensor, heads: Sequence[ActionHead], shown: PackedRows, places: torch.Tensor
) -> torch.Tensor:
    """Translate options chosen in a narrowed observation into those that the game knows, (B, heads) int64.

    Args:
        chosen: by B agents, (B, heads) int64.
        shown: entities in the narrowed observation.
        places: as `ObservationMask.game_rows` returned them for the whole observation.
    """
    meant = chosen.clone()
    for number, head in enumerate(heads):
        if head.candidates == "entity":
            (pointing,) = (chosen[:, number] < head.size - 1).nonzero(as_tuple=True)  # the last option is the no-op
            meant[pointing, number] = places[shown.starts[pointing] + chosen[pointing, number]]
    return meant


def _within(observation: PackedObservation, layout: ObservationLayout, radius: torch.Tensor) -> torch.Tensor:
    """Which entity rows are of entities within the radius, (rows,) bool; the agent itself always is."""
    columns = [layout.entity_columns.index(name) for name in ("row", "col")]
    rows = observation.entity
    apart = (rows.values[:, columns] - observation.centre[rows.owner]).abs()  # (rows, 2)
    return (apart <= radius[rows.owner].unsqueeze(1)).all(dim=1)


POSITION = ("row", "col")
_BODY = ("health", "food", "water")
_HURT = ("damage", "attacker_id")
# All agents spawn in an episode's first tick, so any entity's age, or tick of latest combat, reveals the tick.
_CLOCKS = ("time_alive", "latest_combat_tick")


@dataclass(frozen=True)
class ObservationMask:
    """Which parts are hidden; by default none."""

    own: tuple[str, ...] = ()  # columns set to 0 in the agent's own row
    everyone: tuple[str, ...] = ()  # columns set to 0 in all entity rows, including the agent's own
    clock: bool = True  # whether the policy sees the tick; it is set to 0 otherwise
    absolute: bool = True  # whether positions are those on the map; otherwise they are relative to the agent
    view_radius: int = FULL_RADIUS  # how far the agent sees, in tiles in each direction
    narrow_from: int = 0  # tick of a life from which on it does; before that it sees the whole view
    task_ticks: int | None = None
    """For how many ticks of a life the policy sees its task, which is all zeros afterwards; None: always."""

    @staticmethod
    def of(environment: Mapping[str, Any]) -> "ObservationMask":
        """Read from the settings of a world, as a checkpoint keeps them; older ones mention nothing of it.

        Raises:
            ValueError: a setting has a value that no such setting has.
        """
        shown = {**SHOWN, **environment}
        masked, relative, radius, narrow_from, ticks = (shown[name] for name in SHOWN)
        if masked not in ("off", "own", "strict") or not isinstance(relative, bool):
            raise ValueError(f"mask_intrinsics is {masked!r} and relative_position is {relative!r}")
        if type(radius) is not int or not 1 <= radius <= FULL_RADIUS:
            raise ValueError(f"view_radius is {radius!r}, not a whole number from 1 to {FULL_RADIUS}")
        if type(narrow_from) is not int or narrow_from < 0:
            raise ValueError(f"narrow_from is {narrow_from!r}, not a tick")
        if ticks is not None and (type(ticks) is not int or ticks < 0):
            raise ValueError(f"task_shown_for is {ticks!r}, not a number of ticks")
        strict = masked == "strict"
        return ObservationMask(
            own=() if masked == "off" else _BODY + _HURT * strict,
            everyone=_CLOCKS * strict,
            clock=not strict,
            absolute=not relative,
            view_radius=radius,
            narrow_from=narrow_from if radius < FULL_RADIUS else 0,
            task_ticks=ticks,
        )

    @property
    def withheld(self) -> tuple[str, ...]:
        """Columns of the agent's own row whose true values the policy does not see."""
        return self.own + self.everyone + POSITION * (not self.absolute)

    def apply(self, observation: PackedObservation, layout: ObservationLayout) -> PackedObservation:
        """Return an observation with the hidden parts removed; the original is not changed."""
        if self.view_radius < FULL_RADIUS:
            observation = narrowed(observation, layout, self._radius(observation))
        if self.task_ticks is not None:  # all agents spawn before an episode's first tick, so its tick is their age
            is_shown = observation.tick < self.task_ticks  # (B,)
            observation = replace(observation, task=observation.task * is_shown.unsqueeze(1))
        if not self.withheld:
            return observation
        column = {name: place for place, name in enumerate(layout.entity_columns)}
        entity = observation.entity
        values = entity.values.clone()  # (rows, columns)
        is_own = values[:, 0] == observation.agent_id[entity.owner]  # (rows,)
        for name in self.own:
            values[is_own, column[name]] = 0
        for name in self.everyone:
            values[:, column[name]] = 0
        centre = observation.centre
        if not self.absolute:
            places = [column[name] for name in POSITION]
            values[:, places] -= centre[entity.owner]
            centre = torch.zeros_like(centre)
        tick = observation.tick if self.clock else torch.zeros_like(observation.tick)
        return replace(observation, entity=PackedRows(values, entity.counts), centre=centre, tick=tick)

    def game_rows(self, observation: PackedObservation, layout: ObservationLayout) -> torch.Tensor | None:
        """Return the place in the game's table of each entity row that `apply` leaves; None if it leaves all."""
        if self.view_radius >= FULL_RADIUS:
            return None
        return observation.entity.place[_within(observation, layout, self._radius(observation))]

    def _radius(self, observation: PackedObservation) -> torch.Tensor:
        """Return how far each agent sees, (B,) int64; its age is the episode's tick."""
        is_narrow = observation.tick >= self.narrow_from  # (B,)
        return torch.where(is_narrow, self.view_radius, FULL_RADIUS)
