"""A linear layer that reads a table's rows place by place, on packed rows."""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.observation import PackedRows


class LinearOverPlaces(nn.Linear):
    """A linear layer over the encoded rows of all places of a table, one after the other, padding rows included."""

    def __init__(self, places: int, units: int):
        super().__init__(places * units, units)
        self.places = places

    def packed(
        self, values: torch.Tensor, padding: torch.Tensor, rows: PackedRows, encoder: nn.Linear | None = None
    ) -> torch.Tensor:
        """Return the layer's output for each agent, (B, units).

        What an empty table gives is computed once; each used row adds what it changes.

        Args:
            values: of the used rows, (total rows, units); or (total rows, inputs of the encoder).
            padding: the same of a padding row.
            rows: the table's packed rows.
            encoder: encodes rows; None if `values` are encoded already.
        """
        weights = self.weight.unflatten(1, (self.places, -1))  # (units, places, units)
        empty = padding if encoder is None else encoder(padding)
        changes = values - padding
        if encoder is not None:
            changes = functional.linear(changes, encoder.weight)  # (total rows, units)
        order = rows.place.argsort(stable=True)
        counts = torch.bincount(rows.place, minlength=self.places).tolist()
        by_place = changes.index_select(0, order).split(counts)
        added = torch.cat([part @ weights[:, place].T for place, part in enumerate(by_place) if len(part) or not place])
        start = functional.linear(empty, weights.sum(dim=1), self.bias)  # (units,)
        total = start.expand(len(rows.counts), -1)
        return total.index_add(0, rows.owner.index_select(0, order), added)

    def soft(self, values: torch.Tensor, padding: torch.Tensor, presence: torch.Tensor) -> torch.Tensor:
        """Return the same for rows that may be there.

        Args:
            values: encoded rows in the order of their places, (B, R, units).
            padding: an encoded padding row, (units,).
            presence: probability of each row, (B, R).
        """
        changes = (values - padding) * presence.unsqueeze(-1)
        weights = self.weight.unflatten(1, (self.places, -1))
        start = functional.linear(padding, weights.sum(dim=1), self.bias)
        return start + torch.einsum("bri,ori->bo", changes, weights[:, : values.shape[1]])
