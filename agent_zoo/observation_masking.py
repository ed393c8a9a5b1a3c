"""What of an observation reaches a policy: an agent's own body and place can be withheld from it.

Whoever wants to know whether a memory keeps track of something must first make sure that the input does not tell it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from agent_zoo.observation import ObservationLayout, PackedObservation, PackedRows

POSITION = ("row", "col")
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
    """

    own: tuple[str, ...] = ()
    everyone: tuple[str, ...] = ()
    clock: bool = True
    absolute: bool = True

    @staticmethod
    def of(environment: Mapping[str, Any]) -> "ObservationMask":
        """Read from the settings of a world, as a checkpoint keeps them; older ones mention nothing of it.

        Raises:
            ValueError: a setting has a value that no such setting has.
        """
        masked, relative = environment.get("mask_intrinsics", "off"), environment.get("relative_position", False)
        if masked not in ("off", "own", "strict") or not isinstance(relative, bool):
            raise ValueError(f"mask_intrinsics is {masked!r} and relative_position is {relative!r}")
        strict = masked == "strict"
        return ObservationMask(
            own=() if masked == "off" else _BODY + _HURT * strict,
            everyone=_CLOCKS * strict,
            clock=not strict,
            absolute=not relative,
        )

    @property
    def withheld(self) -> tuple[str, ...]:
        """Columns of the agent's own row that the policy does not see as they are."""
        return self.own + self.everyone + POSITION * (not self.absolute)

    def apply(self, observation: PackedObservation, layout: ObservationLayout) -> PackedObservation:
        """Return an observation without what is withheld; the one given stays as it is."""
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
