"""What the networks as published read of table rows."""

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.network_parts.layers import (
    ITEM_TYPE,
    NPC_TYPE,
    Category,
    EmbeddedRowFeatures,
    RowFeatures,
    at_least_float32,
)
from agent_zoo.observation import ObservationLayout, PackedRows

IDENTITY_EMBEDDING = 32
EQUIPPED = Category(first=0, count=2)
_CLIPPED = 256
# One table embeds four columns, each with an offset, and takes 256 rows only: kinds and messages fall behind its end.
_CLIPPED_IDENTITIES = {
    name: Category(first=-place * _CLIPPED, count=_CLIPPED)
    for place, name in enumerate(("id", "npc_type", "attacker_id", "message"))
}
_IDENTITIES = {"id": Category(first=-256, count=512), "attacker_id": Category(first=-256, count=512)}
_SKILL_SCALES = {"alchemy_level": 100, "alchemy_exp": 10}  # the other way round for the other skills
_ENTITY_SCALES = {
    "row": 256, "col": 256, "damage": 100, "time_alive": 1024, "freeze": 3, "item_level": 50,
    "latest_combat_tick": 1024, "gold": 100, "health": 100, "food": 100, "water": 100,
}  # fmt: skip
_ITEM_SCALES = {
    "level": 10, "capacity": 10, "quantity": 10, "melee_attack": 100, "range_attack": 100, "mage_attack": 100,
    "melee_defense": 40, "range_defense": 40, "mage_defense": 40, "health_restore": 100, "resource_restore": 100,
    "listed_price": 100,
}  # fmt: skip
_ITEM_CATEGORIES = {"type_id": ITEM_TYPE, "equipped": EQUIPPED}
_UNREAD_OF_ITEMS = ("id", "owner_id")


def raw_entity_features(layout: ObservationLayout) -> RowFeatures:
    """Features of entity rows as the start kit reads them: the kind as one-hot, 30 columns in the game's own units."""
    return RowFeatures(layout.entity_columns, {"npc_type": NPC_TYPE}, dict.fromkeys(layout.entity_columns, 1))


def raw_item_features(layout: ObservationLayout) -> RowFeatures:
    """Features of item rows as the start kit reads them: two categories as one-hot, 12 columns in hundreds."""
    scales = dict.fromkeys(layout.item_columns, 100)
    return RowFeatures(layout.item_columns, _ITEM_CATEGORIES, scales, _UNREAD_OF_ITEMS)


def clipped_entity_features(layout: ObservationLayout) -> EmbeddedRowFeatures:
    """Features of entity rows as takeru reads them: four columns as embeddings of one table, 27 scaled ones."""
    scales = {name: 10 if name.endswith("_level") else 100 for name in layout.entity_columns}
    scales |= _ENTITY_SCALES | _SKILL_SCALES
    return EmbeddedRowFeatures(layout.entity_columns, _CLIPPED_IDENTITIES, scales, IDENTITY_EMBEDDING, one_table=True)


def scaled_item_features(layout: ObservationLayout) -> EmbeddedRowFeatures:
    """Features of item rows as takeru reads them: two columns as embeddings, 12 scaled ones."""
    return EmbeddedRowFeatures(
        layout.item_columns, _ITEM_CATEGORIES, _ITEM_SCALES, IDENTITY_EMBEDDING, _UNREAD_OF_ITEMS
    )


def unscaled_entity_features(layout: ObservationLayout) -> EmbeddedRowFeatures:
    """Features of entity rows as yaofeng reads them: two columns as embeddings of one table, 28 as they are."""
    scales = dict.fromkeys(layout.entity_columns, 1)
    return EmbeddedRowFeatures(
        layout.entity_columns, _IDENTITIES, scales, IDENTITY_EMBEDDING, ("message",), one_table=True
    )


def multiplied_item_features(layout: ObservationLayout) -> EmbeddedRowFeatures:
    """Features of item rows as yaofeng reads them: as takeru, but multiplied by what takeru divides by."""
    scales = {name: 1 / scale for name, scale in _ITEM_SCALES.items()}
    return EmbeddedRowFeatures(layout.item_columns, _ITEM_CATEGORIES, scales, IDENTITY_EMBEDDING, _UNREAD_OF_ITEMS)


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
        total = at_least_float32(start).expand(len(rows.counts), -1)
        return total.index_add(0, rows.owner.index_select(0, order), at_least_float32(added))

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
