"""What of an observation reaches a policy: an agent's own body, its place and distant things can be withheld.

Whoever wants to know whether a memory keeps track of something must first make sure that the input does not tell it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from agent_zoo.narrow_view import FULL_RADIUS, game_rows, narrowed
from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows

POSITION = ("row", "col")
SHOWN: Mapping[str, Any] = {"mask_intrinsics": "off", "relative_position": False, "view_radius": FULL_RADIUS}
"""The settings of a world that say what a policy is shown of it, with their defaults."""

_BODY = ("health", "food", "water")
_HURT = ("damage", "attacker_id")
# All agents are born in an episode's first tick, so anyone's age, or tick of its latest fight, tells the time.
_CLOCKS = ("time_alive", "latest_combat_tick")


@dataclass(frozen=True)
class ObservationMask:
    """What is withheld; by default nothing.

    Attributes:
        own: columns of the agent's own row that read 0.
        everyone: columns of all entities' rows, the own one among them, that read 0.
        clock: whether the policy is told the tick, which reads 0 otherwise.
        absolute: whether rows and columns are those of the map; otherwise the agent itself is at 0, 0.
        view_radius: how far the agent sees, in tiles in each direction.
    """

    own: tuple[str, ...] = ()
    everyone: tuple[str, ...] = ()
    clock: bool = True
    absolute: bool = True
    view_radius: int = FULL_RADIUS

    @staticmethod
    def of(environment: Mapping[str, Any]) -> "ObservationMask":
        """Read from the settings of a world, as a checkpoint keeps them; older ones mention nothing of it."""
        shown = {**SHOWN, **environment}
        masked = shown["mask_intrinsics"]
        strict = masked == "strict"
        return ObservationMask(
            own=() if masked == "off" else _BODY + _HURT * strict,
            everyone=_CLOCKS * strict,
            clock=not strict,
            absolute=not shown["relative_position"],
            view_radius=shown["view_radius"],
        )

    @property
    def withheld(self) -> tuple[str, ...]:
        """Columns of the agent's own row that the policy does not see as they are."""
        return self.own + self.everyone + POSITION * (not self.absolute)

    def apply(self, observation: PackedObservation, layout: ObservationLayout) -> PackedObservation:
        """Return an observation without what is withheld; the one given stays as it is."""
        if self.view_radius < FULL_RADIUS:
            observation = narrowed(observation, layout, self.view_radius)
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
        return game_rows(observation, layout, self.view_radius)
