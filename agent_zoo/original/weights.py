"""Builds a policy from the tensors of a checkpoint of the original nmmo_baselines repository.

Its networks are those that our agents of the same name have. This module knows what each tensor is called there, its
shape, and which of its rows and columns ours has.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

import agent_zoo
from activation_store.exchange.original_tools import ACTION_HEADS, ENTITY_COLUMNS, INVENTORY_COLUMNS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout
from common.user_error import UserError

_TILE = ("row", "col", "material_id")
_ROWS: dict[CandidateTable, int] = {"entity": 100, "inventory": 12, "market": 384}


def original_layout(task_size: int) -> ObservationLayout:
    """Return the layout, given how many numbers the embedding of a task has."""
    tables = {rows + 1: table for table, rows in _ROWS.items()}  # a head that chooses among rows has a no-op, too
    return ObservationLayout(
        tile_columns=_TILE,
        entity_columns=ENTITY_COLUMNS,
        item_columns=INVENTORY_COLUMNS,
        tiles=225,
        entities=_ROWS["entity"],
        inventory=_ROWS["inventory"],
        market=_ROWS["market"],
        materials=16,
        map_side=160,
        task_size=task_size,
        heads=tuple(ActionHead(head.name, head.size, head.noop, tables.get(head.size)) for head in ACTION_HEADS),
    )


Tensors = Mapping[str, torch.Tensor]
_Take = Callable[[torch.Tensor], torch.Tensor]
_Target = tuple[tuple[int, ...], Mapping[str, _Take]]
"""Of one of their tensors: the shape that it must have, and ours made from it; none if the original never reads it."""

_PREFIXES = ("policy.policy.", "policy.", "")  # with an LSTM around the network, without, and the network alone
_PLACES = 12  # of the inventory
_EMBEDDING = 32
_HEADS_OF = {
    "attack_style": "Attack_Style", "attack_target": "Attack_Target", "market_buy": "Buy_MarketItem",
    "inventory_destroy": "Destroy_InventoryItem", "inventory_give_item": "Give_InventoryItem",
    "inventory_give_player": "Give_Target", "gold_quantity": "GiveGold_Price", "gold_target": "GiveGold_Target",
    "move": "Move_Direction", "inventory_sell": "Sell_InventoryItem", "inventory_price": "Sell_Price",
    "inventory_use": "Use_InventoryItem",
}  # fmt: skip
_EVERY_AGENT = {"proj_fc": "projection", "value_head": "critic", **{
    f"action_decoder.layers.{theirs}": f"action_decoder.heads.{ours}" for theirs, ours in _HEADS_OF.items()
}}  # fmt: skip
_PLAIN = {
    "tile_encoder.tile_conv_1": "tile_convolution.convolution", "tile_encoder.tile_conv_2": "tile_encoder.1",
    "tile_encoder.tile_fc": "tile_encoder.4", "player_encoder.agent_fc": "entity_encoder",
    "player_encoder.my_agent_fc": "self_encoder", "item_encoder.fc": "item_encoder",
    "market_encoder.fc": "market_encoder", "task_encoder.fc": "task_encoder",
}  # fmt: skip
_YAOFENG = {
    "tile_encoder.tile_resnet.model.0": "tile_convolution.convolution",
    "tile_encoder.tile_resnet.model.1": "tile_convolution.norm",
    "tile_encoder.tile_resnet.model.3": "tile_convolution.second_convolution",
    "tile_encoder.tile_resnet.model.4": "tile_convolution.second_norm",
    "tile_encoder.tile_conv_1": "tile_encoder.0", "tile_encoder.tile_conv_2": "tile_encoder.2",
    "tile_encoder.tile_fc": "tile_encoder.5", "tile_encoder.tile_norm": "tile_encoder.6",
    "player_encoder.agent_mlp.model.0": "entity_perceptron.0",
    "player_encoder.agent_mlp.model.2": "entity_perceptron.2",
    "player_encoder.agent_fc": "entity_encoder.0", "player_encoder.agent_norm": "entity_encoder.1",
    "player_encoder.my_agent_fc": "self_encoder.0", "player_encoder.my_agent_norm": "self_encoder.1",
    "item_encoder.item_mlp.model.0": "item_encoder.0", "item_encoder.item_mlp.model.2": "item_encoder.2",
    "item_encoder.item_norm": "item_encoder.3", "inventory_encoder.fc": "inventory_encoder",
    "inventory_encoder.norm": "inventory_norm", "market_encoder.fc": "market_encoder.0",
    "market_encoder.norm": "market_encoder.1", "task_encoder.fc": "task_encoder.0",
    "task_encoder.norm": "task_encoder.1",
}  # fmt: skip
_TAKERU = {**_PLAIN, "inventory_encoder.fc": "inventory_encoder"}
_MODULES = {"neurips23_start_kit": _PLAIN, "takeru": _TAKERU, "hybrid": _TAKERU, "yaofeng": _YAOFENG}
"""Modules whose tensors ours have as they are, by their names: theirs -> ours, for each agent."""


@dataclass(frozen=True)
class OriginalShape:
    """What the names and shapes of tensors say of a policy."""

    agent: str  # folder in agent_zoo/
    hidden_size: int  # units
    layers: int  # of the LSTM; 0 without one
    task_size: int  # numbers in the embedding of a task


def _all(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _start_kit_entity(weight: torch.Tensor) -> torch.Tensor:
    """Theirs reads the id, five kinds from 0 and the other columns; ours five kinds from -1, the id and the others."""
    immortal = torch.zeros_like(weight[:, :1])
    return torch.cat([immortal, weight[:, 1:5], weight[:, :1], weight[:, 6:]], dim=1)


_ITEM_EMBEDDING: _Target = (
    (256, _EMBEDDING),
    {
        "item_features.embeddings.0.weight": lambda rows: rows[2:20],  # by type
        "item_features.embeddings.1.weight": lambda rows: rows[:2],  # not equipped, equipped
    },
)
_OF_TAKERU: dict[str, _Target] = {
    "tile_encoder.embedding.weight": ((256, _EMBEDDING), {"material.weight": lambda rows: rows[:16]}),
    "player_encoder.embedding.weight": (
        (1024, _EMBEDDING), {"entity_features.embeddings.0.weight": lambda rows: rows[:256]},
    ),
    "item_encoder.embedding.weight": _ITEM_EMBEDDING,
}  # fmt: skip
_OF_YAOFENG: dict[str, _Target] = {
    "tile_encoder.type_embedding.weight": ((16, 62), {"material.weight": _all}),
    "player_encoder.embedding.weight": (
        (7936, _EMBEDDING), {"entity_features.embeddings.0.weight": lambda rows: rows[:512]},
    ),
    "player_encoder.id_embedding.weight": ((512, 64), {}),
    "item_encoder.embedding.weight": _ITEM_EMBEDDING,
}  # fmt: skip


def _of_start_kit(units: int) -> dict[str, _Target]:
    tiles: dict[str, _Take] = {
        "row.weight": lambda rows: rows[:15], "column.weight": lambda rows: rows[256:271],
        "material.weight": lambda rows: rows[512:528],
    }  # fmt: skip
    return {
        "tile_encoder.embedding.weight": ((768, _EMBEDDING), tiles),
        "player_encoder.agent_fc.weight": ((units, 35), {"entity_encoder.weight": _start_kit_entity}),
        "player_encoder.my_agent_fc.weight": ((units, 35), {"self_encoder.weight": _start_kit_entity}),
        "inventory_encoder.fc.weight": ((units, _PLACES * units), {}),
        "inventory_encoder.fc.bias": ((units,), {}),
    }


def policy_from_original(tensors: Tensors) -> RecurrentPolicy:
    """Build the policy that has these tensors of the original repository, on the CPU in float32, ready to run.

    Args:
        tensors: by their names in the state dictionary of the whole policy, or of its network alone.

    Raises:
        UserError: they are not those of one of the four agents, or hold numbers that are not finite.
    """
    names = _plain_names(tensors)
    shape = _shape(names)
    try:
        with torch.device("meta"):  # takes no memory, whatever sizes the tensors make believe
            targets = _targets(shape.agent, shape.hidden_size, _built(shape).state_dict())
    except (RuntimeError, ValueError):
        raise UserError(
            f"no network has its sizes, {shape.hidden_size:,} units and tasks of {shape.task_size:,} numbers"
        ) from None
    _check(names, targets)
    policy = _built(shape)
    policy.load_state_dict({
        name: take(names[theirs].detach().to("cpu", torch.float32)).clone()
        for theirs, (_, ours) in targets.items()
        for name, take in ours.items()
    })  # fmt: skip
    return policy.eval()


def _built(shape: OriginalShape) -> RecurrentPolicy:
    module = agent_zoo.load(shape.agent)
    network = module.Policy(original_layout(shape.task_size), shape.hidden_size)
    policy: RecurrentPolicy = module.Recurrent(network, shape.layers)
    return policy


def original_shape(tensors: Tensors) -> OriginalShape:
    """Return which agent tensors of the original repository are of, and its sizes.

    Raises:
        UserError: as `policy_from_original`, but only what these answers need is looked at.
    """
    return _shape(_plain_names(tensors))


def _plain_names(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Take the wrappers' prefix from the names; the LSTM's begin with `recurrent.`."""
    prefix = next((start for start in _PREFIXES if f"{start}proj_fc.weight" in tensors), None)
    if prefix is None:
        raise UserError(
            f"there is no tensor proj_fc.weight among its {len(tensors)}: it is not a policy of the original"
        )
    memory = prefix.removesuffix("policy.") + "recurrent."
    plain = {}
    for name, tensor in tensors.items():
        if name.startswith(memory):
            plain["recurrent." + name.removeprefix(memory)] = tensor
        elif name.startswith(prefix):
            plain[name.removeprefix(prefix)] = tensor
        else:
            raise UserError(f"it has the tensor {name}, which no agent of the original has")
    return plain


def _shape(tensors: Tensors) -> OriginalShape:
    input_size, hidden_size = _size(tensors, "proj_fc.weight", 0), _size(tensors, "value_head.weight", 1)
    if input_size != hidden_size:
        raise UserError(
            f"its encoder has {input_size} units and its memory {hidden_size}: only policies whose input size is "
            "their hidden size can be read"
        )
    layers = sum(re.fullmatch(r"recurrent\.weight_ih_l\d+", name) is not None for name in tensors)
    if "tile_encoder.type_embedding.weight" in tensors:
        agent = "yaofeng"
    elif "player_encoder.embedding.weight" in tensors:
        agent = "hybrid" if layers else "takeru"
    else:
        agent = "neurips23_start_kit"
    return OriginalShape(agent, hidden_size, layers, _size(tensors, "task_encoder.fc.weight", 1))


def _size(tensors: Tensors, name: str, dimension: int) -> int:
    if name not in tensors:
        raise UserError(f"it lacks the tensor {name}, which every agent of the original has")
    if tensors[name].ndim != 2:
        raise UserError(
            f"its tensor {name} has the shape {tuple(tensors[name].shape)}, but is a matrix in the original"
        )
    return tensors[name].shape[dimension]


def _check(tensors: Tensors, targets: Mapping[str, _Target]) -> None:
    for name in sorted(tensors.keys() - targets.keys()):
        raise UserError(f"it has the tensor {name}, which the original's agent of this kind does not have")
    for name in sorted(targets.keys() - tensors.keys()):
        raise UserError(f"it lacks the tensor {name}, which the original's agent of this kind has")
    for name, (wanted, _) in targets.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != wanted:
            raise UserError(
                f"its tensor {name} has the shape {tuple(tensor.shape)}, not {wanted}: it was trained in a game "
                "of another layout"
            )
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise UserError(f"its tensor {name} holds something else than finite numbers with a fraction")


def _targets(agent: str, units: int, ours: Tensors) -> dict[str, _Target]:
    """Return all tensors that the original's agent has, with our names and shapes; `ours` are of our policy."""
    targets: dict[str, _Target] = {
        f"{theirs}.{kind}": (tuple(ours[f"policy.{name}.{kind}"].shape), {f"{name}.{kind}": _all})
        for theirs, name in (_EVERY_AGENT | _MODULES[agent]).items()
        for kind in ("weight", "bias")
    }
    tables = {"takeru": _OF_TAKERU, "hybrid": _OF_TAKERU, "yaofeng": _OF_YAOFENG}
    targets |= tables[agent] if agent in tables else _of_start_kit(units)
    targets = {
        theirs: (shape, {f"policy.{name}": take for name, take in made.items()})
        for theirs, (shape, made) in targets.items()
    }
    for name, tensor in ours.items():
        if name.startswith("lstm."):
            targets[name.replace("lstm.", "recurrent.")] = tuple(tensor.shape), {name: _all}
    return targets
