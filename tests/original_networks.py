"""What the original's agents compute, said once more, agent by agent and row by row in float64: to compare with.

Written from the facts about the original, with its names of tensors; nothing of agent_zoo is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Weights = Mapping[str, np.ndarray]
NUMBERS_OF_ITEMS = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15)
ITEM_SCALES = np.array([10.0, 10, 10, 100, 100, 100, 40, 40, 40, 100, 100, 100])
OWN_OPTIONS = {"attack_style": 3, "gold_quantity": 99, "move": 5, "inventory_price": 99}
TABLE_OF_HEAD = {
    "attack_target": "Entity", "market_buy": "Market", "inventory_destroy": "Inventory",
    "inventory_give_item": "Inventory", "inventory_give_player": "Entity", "gold_target": "Entity",
    "inventory_sell": "Inventory", "inventory_use": "Inventory",
}  # fmt: skip
HEADS = {
    "attack_style": "Attack.Style", "attack_target": "Attack.Target", "market_buy": "Buy.MarketItem",
    "inventory_destroy": "Destroy.InventoryItem", "inventory_give_item": "Give.InventoryItem",
    "inventory_give_player": "Give.Target", "gold_quantity": "GiveGold.Price", "gold_target": "GiveGold.Target",
    "move": "Move.Direction", "inventory_sell": "Sell.InventoryItem", "inventory_price": "Sell.Price",
    "inventory_use": "Use.InventoryItem",
}  # fmt: skip


@dataclass(frozen=True)
class Outputs:
    """What an agent computes in a tick: (units,) each, a number, (layers, units) each, and head -> (options,)."""

    encoder_output: np.ndarray
    decoder_input: np.ndarray
    value: float
    hidden: np.ndarray
    cell: np.ndarray
    logits: Mapping[str, np.ndarray]


def random_weights(agent: str, units: int, task_size: int, layers: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors of an agent under the names in the original's state dictionary, none of them 0."""
    wide = {"neurips23_start_kit": 6}.get(agent, 5)
    shapes = _shapes_of(agent, units)
    shapes |= _linears({"inventory_encoder.fc": (units, 12 * units), "market_encoder.fc": (units, units)})
    shapes |= _linears({"task_encoder.fc": (units, task_size), "proj_fc": (units, wide * units)})
    shapes |= _linears({"value_head": (1, units), "tile_encoder.tile_fc": (units, 968)})
    for head in HEADS:
        shapes |= _linears({f"action_decoder.layers.{head}": (OWN_OPTIONS.get(head, units), units)})
    named = {f"policy.policy.{name}": shape for name, shape in shapes.items()}
    for layer in range(layers):
        for side in ("ih", "hh"):
            named[f"policy.recurrent.weight_{side}_l{layer}"] = (4 * units, units)
            named[f"policy.recurrent.bias_{side}_l{layer}"] = (4 * units,)
    random = np.random.default_rng(seed)
    return {name: (0.1 * random.standard_normal(shape)).astype(np.float32) for name, shape in named.items()}


def _shapes_of(agent: str, units: int) -> dict[str, tuple[int, ...]]:
    tiles, players, items = "tile_encoder", "player_encoder", "item_encoder"
    if agent == "neurips23_start_kit":
        return {f"{tiles}.embedding.weight": (768, 32)} | _linears({
            f"{tiles}.tile_conv_1": (32, 96, 3, 3), f"{tiles}.tile_conv_2": (8, 32, 3, 3),
            f"{players}.agent_fc": (units, 35), f"{players}.my_agent_fc": (units, 35), f"{items}.fc": (units, 32),
        })  # fmt: skip
    tables: dict[str, tuple[int, ...]] = {f"{items}.embedding.weight": (256, 32)}
    if agent in ("takeru", "hybrid"):
        tables |= {f"{tiles}.embedding.weight": (256, 32), f"{players}.embedding.weight": (1024, 32)}
        return tables | _linears({
            f"{tiles}.tile_conv_1": (16, 32, 3, 3), f"{tiles}.tile_conv_2": (8, 16, 3, 3),
            f"{players}.agent_fc": (units, 155), f"{players}.my_agent_fc": (units, 155), f"{items}.fc": (units, 76),
        })  # fmt: skip
    tables |= {f"{tiles}.type_embedding.weight": (16, 62), f"{players}.embedding.weight": (7936, 32)}
    tables |= {f"{players}.id_embedding.weight": (512, 64)}
    norms = [f"{players}.agent_norm", f"{players}.my_agent_norm", f"{items}.item_norm", f"{tiles}.tile_norm"]
    norms += ["inventory_encoder.norm", "market_encoder.norm", "task_encoder.norm"]
    for norm in norms:
        tables |= {f"{norm}.weight": (units,), f"{norm}.bias": (units,)}
    for place in (1, 4):
        tables |= {f"{tiles}.tile_resnet.model.{place}.{kind}": (64, 15, 15) for kind in ("weight", "bias")}
    return tables | _linears({
        f"{tiles}.tile_resnet.model.0": (64, 64, 3, 3), f"{tiles}.tile_resnet.model.3": (64, 64, 3, 3),
        f"{tiles}.tile_conv_1": (32, 64, 3, 3), f"{tiles}.tile_conv_2": (8, 32, 3, 3),
        f"{players}.agent_mlp.model.0": (units, 92), f"{players}.agent_mlp.model.2": (units, units),
        f"{players}.agent_fc": (units, units), f"{players}.my_agent_fc": (units, units),
        f"{items}.item_mlp.model.0": (units, 76), f"{items}.item_mlp.model.2": (units, units),
    })  # fmt: skip


def _linears(weights: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    both = {f"{name}.weight": shape for name, shape in weights.items()}
    return both | {f"{name}.bias": shape[:1] for name, shape in weights.items()}


class Original:
    """One of the original's agents."""

    def __init__(self, agent: str, weights: Weights):
        self.agent = agent
        self.plain = {name.removeprefix("policy.policy."): tensor.astype(float) for name, tensor in weights.items()}
        self.layers = sum("weight_ih" in name for name in weights)

    def tick(self, seen: np.void, hidden: np.ndarray, cell: np.ndarray) -> Outputs:
        """Play one agent's observation, as the game gives it, after a memory of (layers, units) each."""
        keys = {"Entity": [self.entity(row) for row in seen["Entity"]]}
        keys |= {table: [self.item(row) for row in seen[table]] for table in ("Inventory", "Market")}
        (own,) = (row for row in seen["Entity"] if row[0] == np.ravel(seen["AgentId"])[0])
        blocks = [self.tiles(seen["Tile"]), self.own(own)]
        if self.agent == "neurips23_start_kit":
            blocks += [np.mean(keys["Entity"], axis=0), np.mean(keys["Inventory"], axis=0)]
            blocks += [np.mean([self.linear("market_encoder.fc", key) for key in keys["Market"]], axis=0)]
            blocks += [self.linear("task_encoder.fc", seen["Task"])]
        else:
            places = self.linear("inventory_encoder.fc", np.concatenate(keys["Inventory"]))
            market = np.mean([self.linear("market_encoder.fc", key) for key in keys["Market"]], axis=0)
            task = self.linear("task_encoder.fc", seen["Task"])
            last = [("inventory_encoder", places), ("market_encoder", market), ("task_encoder", task)]
            blocks += [self.normed(f"{name}.norm", x) if self.agent == "yaofeng" else x for name, x in last]
        encoded = self.linear("proj_fc", np.concatenate(blocks))
        encoded = rectified(encoded) if self.agent == "yaofeng" else encoded
        read, hidden, cell = self.remember(encoded, hidden, cell)
        value = float(self.linear("value_head", read)[0])
        return Outputs(encoded, read, value, hidden, cell, self.logits(read, keys, seen["ActionTargets"]))

    def linear(self, name: str, inputs: np.ndarray) -> np.ndarray:
        return self.plain[f"{name}.weight"] @ inputs.astype(float) + self.plain[f"{name}.bias"]

    def normed(self, name: str, inputs: np.ndarray) -> np.ndarray:
        """Normalise over everything, and rectify."""
        plain = (inputs - inputs.mean()) / np.sqrt(inputs.var() + 1e-5)
        return rectified(plain * self.plain[f"{name}.weight"] + self.plain[f"{name}.bias"])

    def convolved(self, name: str, planes: np.ndarray, margin: int = 0) -> np.ndarray:
        """Convolve (units, rows, columns), with zeros around it."""
        weight = self.plain[f"{name}.weight"]
        wide = np.pad(planes, ((0, 0), (margin, margin), (margin, margin)))
        rows, columns = wide.shape[1] - 2, wide.shape[2] - 2
        total = np.zeros((len(weight), rows, columns)) + self.plain[f"{name}.bias"][:, None, None]
        for row in range(rows):
            for column in range(columns):
                total[:, row, column] += (weight * wide[:, row : row + 3, column : column + 3]).sum(axis=(1, 2, 3))
        return total

    def tiles(self, tile: np.ndarray) -> np.ndarray:
        vectors = np.array([self.tile(place, *tile[place].astype(int)) for place in range(225)])
        planes = vectors.T.reshape(-1, 15, 15)
        if self.agent == "yaofeng":
            block = "tile_encoder.tile_resnet.model"
            inner = self.normed(f"{block}.1", self.convolved(f"{block}.0", planes, margin=1))
            inner = self.convolved(f"{block}.3", inner, margin=1)
            norm = (inner - inner.mean()) / np.sqrt(inner.var() + 1e-5)
            planes = rectified(planes + norm * self.plain[f"{block}.4.weight"] + self.plain[f"{block}.4.bias"])
        planes = rectified(self.convolved("tile_encoder.tile_conv_1", planes))
        planes = rectified(self.convolved("tile_encoder.tile_conv_2", planes))
        encoded = self.linear("tile_encoder.tile_fc", planes.ravel())
        return self.normed("tile_encoder.tile_norm", encoded) if self.agent == "yaofeng" else rectified(encoded)

    def tile(self, place: int, row: int, column: int, material: int) -> np.ndarray:
        if self.agent == "yaofeng":
            kind = self.plain["tile_encoder.type_embedding.weight"][material]
            return np.concatenate([[row / 128 - 0.5, column / 128 - 0.5], kind])
        table = self.plain["tile_encoder.embedding.weight"]
        if self.agent == "neurips23_start_kit":
            return np.concatenate([table[place // 15], table[256 + place % 15], table[512 + material]])
        return table[material]

    def entity(self, row: np.ndarray) -> np.ndarray:
        encoded = self.linear("player_encoder.agent_fc", self.described(row))
        return self.normed("player_encoder.agent_norm", encoded) if self.agent == "yaofeng" else encoded

    def own(self, row: np.ndarray) -> np.ndarray:
        encoded = self.linear("player_encoder.my_agent_fc", self.described(row))
        return self.normed("player_encoder.my_agent_norm", encoded) if self.agent == "yaofeng" else rectified(encoded)

    def described(self, row: np.ndarray) -> np.ndarray:
        """What the last layer over an entity reads."""
        row = row.astype(float)
        if self.agent == "neurips23_start_kit":
            return np.concatenate([row[:1], np.arange(5) == row[1], row[2:]])
        table = self.plain["player_encoder.embedding.weight"]
        if self.agent == "yaofeng":
            embedded = [table[int(np.clip(row[column] + 256, 0, 511))] for column in (0, 8)]
            inner = np.concatenate([*embedded, np.delete(row, [0, 8, 10])])
            for layer in (0, 2):
                inner = rectified(self.linear(f"player_encoder.agent_mlp.model.{layer}", inner))
            return inner
        embedded = [table[int(np.clip(row[column] + 256 * at, 0, 255))] for at, column in enumerate((0, 1, 8, 10))]
        #          row  col  hurt alive frozen item fought gold health food water
        scales = [256, 256, 100, 1024, 3, 50, 1024, 100, 100, 100, 100, *[10, 100] * 7, 100, 10]
        return np.concatenate([*embedded, np.delete(row, [0, 1, 8, 10]) / scales])

    def item(self, row: np.ndarray) -> np.ndarray:
        kind, equipped, numbers = int(row[1]), int(row[14]), row[list(NUMBERS_OF_ITEMS)].astype(float)
        if self.agent == "neurips23_start_kit":
            kinds, states = np.arange(18) == kind, np.arange(2) == equipped
            return self.linear("item_encoder.fc", np.concatenate([kinds, states, numbers / 100]))
        table = self.plain["item_encoder.embedding.weight"]
        if self.agent == "yaofeng":
            inner = np.concatenate([table[kind + 2], table[equipped], numbers * ITEM_SCALES])
            inner = rectified(self.linear("item_encoder.item_mlp.model.0", inner))
            return self.normed("item_encoder.item_norm", self.linear("item_encoder.item_mlp.model.2", inner))
        inputs = np.concatenate([table[kind + 2], table[equipped], numbers / ITEM_SCALES])
        return self.linear("item_encoder.fc", inputs)

    def remember(self, read: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, ...]:
        hidden, cell = hidden.astype(float), cell.astype(float)
        for layer in range(self.layers):
            part = {side: f"policy.recurrent.{{}}_{side}_l{layer}" for side in ("ih", "hh")}
            sums = np.zeros(4 * len(read))
            for side, inputs in (("ih", read), ("hh", hidden[layer])):
                sums += self.plain[part[side].format("weight")] @ inputs + self.plain[part[side].format("bias")]
            entering, forgetting, candidate, leaving = sums.reshape(4, -1)
            cell[layer] = sigmoid(forgetting) * cell[layer] + sigmoid(entering) * np.tanh(candidate)
            hidden[layer] = read = sigmoid(leaving) * np.tanh(cell[layer])
        return read, hidden, cell

    def logits(
        self, read: np.ndarray, keys: Mapping[str, Sequence[np.ndarray]], legal: np.void
    ) -> dict[str, np.ndarray]:
        printed = {}
        read = rectified(read) if self.agent == "yaofeng" else read
        for theirs, head in HEADS.items():
            scores = self.linear(f"action_decoder.layers.{theirs}", read)
            if theirs in TABLE_OF_HEAD:
                scores = np.array([*(scores @ key for key in keys[TABLE_OF_HEAD[theirs]]), 0.0])  # the last: no-op
            action, argument = head.split(".")
            printed[head] = np.where(legal[action][argument] > 0, scores, -1e9)
        return printed


def rectified(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, 0)


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))
