"""The start kit's network with every padding row encoded: what the packed one must equal, written the plain way."""

import torch
from torch.nn import functional

from agent_zoo.neurips23_start_kit.policy import Policy


def dense_forward(policy: Policy, tables: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode and decode with the policy's own weights.

    Args:
        policy: the packed network.
        tables: the game's padded tables (`Tile`, `Entity`, `Inventory`, `Market`, `Task`, `AgentId`), and
            `ActionTargets` as (B, mask size) bool.

    Returns:
        The encoder's output (B, hidden), and log-probabilities of all options (B, mask size), heads side by side.
    """
    encoded, entities, inventory, market = _encode(policy, tables)
    keys = {"entity": entities, "inventory": inventory, "market": market}
    columns = []
    sizes = [head.size for head in policy.layout.heads]
    for head, legal in zip(policy.layout.heads, tables["ActionTargets"].split(sizes, dim=1), strict=True):
        name = head.name.replace(".", "_")
        scores = policy.action_decoder.heads[name](encoded)
        if head.candidates:
            query = scores / scores.shape[1] ** 0.5
            noop = policy.action_decoder.noop_keys[name].expand(len(query), 1, -1)
            scores = (torch.cat([keys[head.candidates], noop], dim=1) @ query.unsqueeze(2)).squeeze(2)
        columns.append(torch.log_softmax(scores.masked_fill(~legal, -1e9), dim=1))
    return encoded, torch.cat(columns, dim=1)


def _encode(policy: Policy, tables: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    tile = tables["Tile"].long()
    relative = tile[:, :, :2] - tile[:, 112:113, :2] + 7
    convolution = policy.tile_convolution
    planes = torch.cat(
        [
            convolution.row(relative[:, :, 0]),
            convolution.column(relative[:, :, 1]),
            convolution.material(tile[:, :, 2]),
        ],
        dim=2,
    )
    planes = planes.transpose(1, 2).reshape(len(tile), -1, 15, 15)
    tiles = policy.tile_encoder(convolution.convolution(planes))

    def embed(table: torch.Tensor, features: torch.nn.Module, linear: torch.nn.Module) -> torch.Tensor:
        rows = functional.relu(linear(features(table.flatten(0, 1))))
        return rows.view(*table.shape[:2], -1)

    entities = embed(tables["Entity"], policy.entity_features, policy.entity_encoder)
    inventory = embed(tables["Inventory"], policy.item_features, policy.item_encoder)
    market = embed(tables["Market"], policy.item_features, policy.item_encoder)
    is_self = tables["Entity"][:, :, 0] == tables["AgentId"].view(-1, 1)
    own = tables["Entity"][is_self]
    parts = [
        tiles,
        functional.relu(policy.self_encoder(policy.entity_features(own))),
        entities.mean(dim=1),
        inventory.mean(dim=1),
        market.mean(dim=1),
        functional.relu(policy.task_encoder(tables["Task"].to(policy.task_encoder.weight.dtype))),
    ]
    return policy.projection(torch.cat(parts, dim=1)), entities, inventory, market
