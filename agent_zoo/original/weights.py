"""Builds a policy from the tensors of a checkpoint of the original nmmo_baselines repository.

Its networks are those that our agents of the same name have. This module knows what each tensor is called there, its
shape, and which of its rows and columns ours has.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

import agent_zoo
from agent_zoo.base import RecurrentPolicy
from agent_zoo.observation import ActionHead, CandidateTable, ObservationLayout
from common.user_error import UserError

_TILE = ("row", "col", "material_id")
_ENTITY = (
    "id", "npc_type", "row", "col", "damage", "time_alive", "freeze", "item_level", "attacker_id", "latest_combat_tick",
    "message", "gold", "health", "food", "water",
)  # fmt: skip
_SKILLS = ("melee", "range", "mage", "fishing", "herbalism", "prospecting", "carving", "alchemy")
_ITEM = (
    "id", "type_id", "owner_id", "level", "capacity", "quantity", "melee_attack", "range_attack", "mage_attack",
    "melee_defense", "range_defense", "mage_defense", "health_restore", "resource_restore", "equipped", "listed_price",
)  # fmt: skip
_ROWS: dict[CandidateTable, int] = {"entity": 100, "inventory": 12, "market": 384}
_HEADS: tuple[tuple[str, CandidateTable | int], ...] = (
    ("Attack.Style", 3), ("Attack.Target", "entity"), ("Buy.MarketItem", "market"),
    ("Destroy.InventoryItem", "inventory"), ("Give.InventoryItem", "inventory"), ("Give.Target", "entity"),
    ("GiveGold.Price", 99), ("GiveGold.Target", "entity"), ("Move.Direction", 5),
    ("Sell.InventoryItem", "inventory"), ("Sell.Price", 99), ("Use.InventoryItem", "inventory"),
)  # fmt: skip


def original_layout(task_size: int) -> ObservationLayout:
    """Return the layout, given how many numbers the embedding of a task has."""
    return ObservationLayout(
        tile_columns=_TILE,
        entity_columns=_ENTITY + tuple(f"{skill}_{kind}" for skill in _SKILLS for kind in ("level", "exp")),
        item_columns=_ITEM,
        tiles=225,
        entities=_ROWS["entity"],
        inventory=_ROWS["inventory"],
        market=_ROWS["market"],
        materials=16,
        map_side=160,
        task_size=task_size,
        heads=tuple(_head(name, options) for name, options in _HEADS),
    )


def _head(name: str, options: CandidateTable | int) -> ActionHead:
    if isinstance(options, int):
        return ActionHead(name, options, options - 1 if name == "Move.Direction" else None, None)
    size = _ROWS[options] + 1
    return ActionHead(name, size, size - 1, options)


Tensors = Mapping[str, torch.Tensor]
_Take = Callable[[torch.Tensor], torch.Tensor]

_PREFIXES = ("policy.policy.", "policy.", "")  # with an LSTM around the network, without, and the network alone
_GATES = 4
_PLACES = 12  # of the inventory
_EMBEDDING = 32
_TILE_UNITS = 8 * 11**2  # what two convolutions leave of a view of 15 tiles
_ITEM_NUMBERS = 12
_ROW_HEADS = {
    "attack_target": "Attack_Target", "market_buy": "Buy_MarketItem", "inventory_destroy": "Destroy_InventoryItem",
    "inventory_give_item": "Give_InventoryItem", "inventory_give_player": "Give_Target",
    "gold_target": "GiveGold_Target", "inventory_sell": "Sell_InventoryItem", "inventory_use": "Use_InventoryItem",
}  # fmt: skip
_OTHER_HEADS = {
    "attack_style": ("Attack_Style", 3), "gold_quantity": ("GiveGold_Price", 99), "move": ("Move_Direction", 5),
    "inventory_price": ("Sell_Price", 99),
}  # fmt: skip


@dataclass(frozen=True)
class OriginalShape:
    """What the names and shapes of tensors say of a policy."""

    agent: str  # folder in agent_zoo/
    hidden_size: int  # units
    layers: int  # of the LSTM; 0 without one
    task_size: int  # numbers in the embedding of a task


def _all(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(frozen=True)
class _Target:
    """What becomes of one of their tensors."""

    shape: tuple[int, ...]  # that it must have
    ours: Mapping[str, _Take] = field(default_factory=dict)
    """Our tensors made from it; none if the original never reads it."""


_Targets = dict[str, _Target]
_ITEM_EMBEDDING = _Target(
    (256, _EMBEDDING),
    {
        "item_features.embeddings.0.weight": lambda rows: rows[2:20],  # by type
        "item_features.embeddings.1.weight": lambda rows: rows[:2],  # not equipped, equipped
    },
)


def policy_from_original(tensors: Tensors) -> RecurrentPolicy:
    """Build the policy that has these tensors of the original repository, on the CPU in float32, ready to run.

    Args:
        tensors: by their names in the state dictionary of the whole policy, or of its network alone.

    Raises:
        UserError: they are not those of one of the four agents, or hold numbers that are not finite.
    """
    names = _plain_names(tensors)
    shape = _shape(names)
    targets = _targets(shape)
    _check(names, targets)
    ours = {
        name: take(names[theirs].detach().to("cpu", torch.float32)).clone()
        for theirs, target in targets.items()
        for name, take in target.ours.items()
    }
    module = agent_zoo.load(shape.agent)
    network = module.Policy(original_layout(shape.task_size), shape.hidden_size)
    policy: RecurrentPolicy = module.Recurrent(network, shape.layers)
    policy.load_state_dict(ours)
    return policy.eval()


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
        raise UserError(f"there is no tensor proj_fc.weight among its {len(tensors)}: it is no policy of the original")
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


def _check(tensors: Tensors, targets: _Targets) -> None:
    for name in sorted(tensors.keys() - targets.keys()):
        raise UserError(f"it has the tensor {name}, which the original's agent of this kind does not have")
    for name in sorted(targets.keys() - tensors.keys()):
        raise UserError(f"it lacks the tensor {name}, which the original's agent of this kind has")
    for name, target in targets.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != target.shape:
            raise UserError(
                f"its tensor {name} has the shape {tuple(tensor.shape)}, not {target.shape}: it was trained in a game "
                "of another layout"
            )
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise UserError(f"its tensor {name} holds something else than finite numbers with a fraction")


def _targets(shape: OriginalShape) -> _Targets:
    """All tensors that the original's agent has, with our names and shapes."""
    units = shape.hidden_size
    agents = {"neurips23_start_kit": _start_kit, "takeru": _takeru, "hybrid": _takeru, "yaofeng": _yaofeng}
    targets = agents[shape.agent](units)
    if shape.agent == "yaofeng":
        targets |= _normalized("task_encoder.fc", "task_encoder.norm", "task_encoder", units, shape.task_size)
    else:
        targets |= _linear("task_encoder.fc", "task_encoder", units, shape.task_size)
    targets |= _linear("value_head", "critic", 1, units)
    for theirs, ours in _ROW_HEADS.items():
        targets |= _linear(f"action_decoder.layers.{theirs}", f"action_decoder.heads.{ours}", units, units)
    for theirs, (ours, options) in _OTHER_HEADS.items():
        targets |= _linear(f"action_decoder.layers.{theirs}", f"action_decoder.heads.{ours}", options, units)
    targets = {name: _inside(target, "policy.") for name, target in targets.items()}
    for layer in range(shape.layers):
        for side in ("ih", "hh"):
            for kind, size in (("weight", (_GATES * units, units)), ("bias", (_GATES * units,))):
                name = f"{kind}_{side}_l{layer}"
                targets[f"recurrent.{name}"] = _Target(size, {f"lstm.{name}": _all})
    return targets


def _start_kit(units: int) -> _Targets:
    table = {
        "row.weight": lambda rows: rows[:15],
        "column.weight": lambda rows: rows[256:271],
        "material.weight": lambda rows: rows[512:528],
    }
    return {
        "tile_encoder.embedding.weight": _Target((768, _EMBEDDING), table),
        **_convolutions(3 * _EMBEDDING, 32, units),
        **_linear("player_encoder.agent_fc", "entity_encoder", units, 35, _start_kit_entity),
        **_linear("player_encoder.my_agent_fc", "self_encoder", units, 35, _start_kit_entity),
        **_linear("item_encoder.fc", "item_encoder", units, 18 + 2 + _ITEM_NUMBERS),
        **_linear("inventory_encoder.fc", None, units, _PLACES * units),
        **_linear("market_encoder.fc", "market_encoder", units, units),
        **_linear("proj_fc", "projection", units, 6 * units),
    }


def _start_kit_entity(weight: torch.Tensor) -> torch.Tensor:
    """Theirs reads the id, five kinds from 0 and the other columns; ours five kinds from -1, the id and the others."""
    immortal = torch.zeros_like(weight[:, :1])
    return torch.cat([immortal, weight[:, 1:5], weight[:, :1], weight[:, 6:]], dim=1)


def _takeru(units: int) -> _Targets:
    return {
        "tile_encoder.embedding.weight": _Target((256, _EMBEDDING), {"material.weight": lambda rows: rows[:16]}),
        **_convolutions(_EMBEDDING, 16, units),
        "player_encoder.embedding.weight": _Target(
            (1024, _EMBEDDING), {"entity_features.embeddings.0.weight": lambda rows: rows[:256]}
        ),
        **_linear("player_encoder.agent_fc", "entity_encoder", units, 4 * _EMBEDDING + 27),
        **_linear("player_encoder.my_agent_fc", "self_encoder", units, 4 * _EMBEDDING + 27),
        "item_encoder.embedding.weight": _ITEM_EMBEDDING,
        **_linear("item_encoder.fc", "item_encoder", units, 2 * _EMBEDDING + _ITEM_NUMBERS),
        **_linear("inventory_encoder.fc", "inventory_encoder", units, _PLACES * units),
        **_linear("market_encoder.fc", "market_encoder", units, units),
        **_linear("proj_fc", "projection", units, 5 * units),
    }


def _yaofeng(units: int) -> _Targets:
    planes, view = 64, (64, 15, 15)
    block, theirs = "tile_convolution", "tile_encoder.tile_resnet.model"
    identities = {"entity_features.embeddings.0.weight": lambda rows: rows[:512]}
    return {
        "tile_encoder.type_embedding.weight": _Target((16, planes - 2), {"material.weight": _all}),
        **_layer(f"{theirs}.0", f"{block}.convolution", (planes, planes, 3, 3)),
        **_norm(f"{theirs}.1", f"{block}.norm", view),
        **_layer(f"{theirs}.3", f"{block}.second_convolution", (planes, planes, 3, 3)),
        **_norm(f"{theirs}.4", f"{block}.second_norm", view),
        **_layer("tile_encoder.tile_conv_1", "tile_encoder.0", (32, planes, 3, 3)),
        **_layer("tile_encoder.tile_conv_2", "tile_encoder.2", (8, 32, 3, 3)),
        **_linear("tile_encoder.tile_fc", "tile_encoder.5", units, _TILE_UNITS),
        **_norm("tile_encoder.tile_norm", "tile_encoder.6", (units,)),
        "player_encoder.embedding.weight": _Target((7936, _EMBEDDING), identities),
        "player_encoder.id_embedding.weight": _Target((512, 64)),
        **_linear("player_encoder.agent_mlp.model.0", "entity_perceptron.0", units, 2 * _EMBEDDING + 28),
        **_linear("player_encoder.agent_mlp.model.2", "entity_perceptron.2", units, units),
        **_normalized("player_encoder.agent_fc", "player_encoder.agent_norm", "entity_encoder", units, units),
        **_normalized("player_encoder.my_agent_fc", "player_encoder.my_agent_norm", "self_encoder", units, units),
        "item_encoder.embedding.weight": _ITEM_EMBEDDING,
        **_linear("item_encoder.item_mlp.model.0", "item_encoder.0", units, 2 * _EMBEDDING + _ITEM_NUMBERS),
        **_linear("item_encoder.item_mlp.model.2", "item_encoder.2", units, units),
        **_norm("item_encoder.item_norm", "item_encoder.3", (units,)),
        **_linear("inventory_encoder.fc", "inventory_encoder", units, _PLACES * units),
        **_norm("inventory_encoder.norm", "inventory_norm", (units,)),
        **_normalized("market_encoder.fc", "market_encoder.norm", "market_encoder", units, units),
        **_linear("proj_fc", "projection", units, 5 * units),
    }


def _convolutions(planes: int, channels: int, units: int) -> _Targets:
    return {
        **_layer("tile_encoder.tile_conv_1", "tile_convolution.convolution", (channels, planes, 3, 3)),
        **_layer("tile_encoder.tile_conv_2", "tile_encoder.1", (8, channels, 3, 3)),
        **_linear("tile_encoder.tile_fc", "tile_encoder.4", units, _TILE_UNITS),
    }


def _linear(
    theirs: str, ours: str | None, units: int, inputs: int,
    take: _Take = _all,
) -> _Targets:  # fmt: skip
    return _layer(theirs, ours, (units, inputs), take)


def _norm(theirs: str, ours: str, shape: tuple[int, ...]) -> _Targets:
    return {f"{theirs}.{kind}": _Target(shape, {f"{ours}.{kind}": _all}) for kind in ("weight", "bias")}


def _normalized(theirs: str, norm: str, ours: str, units: int, inputs: int) -> _Targets:
    return _linear(theirs, f"{ours}.0", units, inputs) | _norm(norm, f"{ours}.1", (units,))


def _layer(
    theirs: str, ours: str | None, weight: tuple[int, ...],
    take: _Take = _all,
) -> _Targets:  # fmt: skip
    return {
        f"{theirs}.weight": _Target(weight, {f"{ours}.weight": take} if ours else {}),
        f"{theirs}.bias": _Target(weight[:1], {f"{ours}.bias": _all} if ours else {}),
    }


def _inside(target: _Target, prefix: str) -> _Target:
    return _Target(target.shape, {prefix + name: take for name, take in target.ours.items()})
