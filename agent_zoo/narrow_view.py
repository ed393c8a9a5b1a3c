"""A view smaller than the game's: what lies farther off is taken out of an observation.

The observation keeps its layout: tiles out of view are void, entities out of view have no row, and options that point
at them do not exist. The rows that are left move up, so an option that points at a row means another one in the game:
`options_in_game` translates what was chosen.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from agent_zoo.observation import (
    ActionHead,
    ObservationLayout,
    PackedObservation,
    PackedRows,
    legal_options,
    packed_options,
)

_VOID = 0


def narrowed(observation: PackedObservation, layout: ObservationLayout, radius: int) -> PackedObservation:
    """Return what is left of an observation within so many tiles in each direction; the one given stays as it is.

    Who can attack must, in the game. If all that could be attacked is out of view, doing nothing is legal again.
    """
    within = _within(observation, layout, radius)
    places = observation.entity.place[within]  # of the rows that are left, in the game's own table
    shown = observation.entity.take_rows(within)
    side = layout.view_side
    apart = (torch.arange(side, device=observation.material.device) - side // 2).abs()
    far = torch.maximum(apart.unsqueeze(0), apart.unsqueeze(1)).flatten() > radius  # (tiles,)
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


def game_rows(observation: PackedObservation, layout: ObservationLayout, radius: int) -> torch.Tensor:
    """Return the place in the game's own table, among its agent's rows, of each entity row that `narrowed` leaves."""
    return observation.entity.place[_within(observation, layout, radius)]


def options_in_game(
    chosen: torch.Tensor, heads: Sequence[ActionHead], shown: PackedRows, places: torch.Tensor
) -> torch.Tensor:
    """Translate options chosen in a narrowed observation into those that the game knows, (B, heads) int64.

    Args:
        chosen: by B agents, (B, heads) int64.
        shown: entities in the narrowed observation.
        places: as `game_rows` returned them for the whole observation.
    """
    meant = chosen.clone()
    for number, head in enumerate(heads):
        if head.candidates == "entity":
            (pointing,) = (chosen[:, number] < head.size - 1).nonzero(as_tuple=True)  # the last option is the no-op
            meant[pointing, number] = places[shown.starts[pointing] + chosen[pointing, number]]
    return meant


def _within(observation: PackedObservation, layout: ObservationLayout, radius: int) -> torch.Tensor:
    """Which entity rows are of entities within the radius, (rows,) bool; the agent itself always is."""
    columns = [layout.entity_columns.index(name) for name in ("row", "col")]
    rows = observation.entity
    apart = (rows.values[:, columns] - observation.centre[rows.owner]).abs()  # (rows, 2)
    return (apart <= radius).all(dim=1)
