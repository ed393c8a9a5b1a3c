"""The world model's network: a bottleneck, a recurrent state-space model with discrete latents, and its decoder.

The recurrent state-space model follows DreamerV2 (Hafner et al. 2021, arXiv:2010.02193): a deterministic state h that a
gated recurrent unit updates, and a latent state z of categorical variables, drawn from the prior p(z | h) or from the
posterior q(z | h, observation). The decoder starts from the last scene, shifted by the agent's own move, and predicts
what differs from it. Terrain that comes into view again is taken from where it was seen before. What the agent can do,
and what it eats and drinks, depends on the tiles around it: these are read after its move.

Health, food and water are distributions over levels. They start from what the game's rules make of those of the last
tick (`rules.py`), on terrain as it was seen, and a distribution over changes moves them from there. Changes suit what
the rules leave out, such as a fight: a blow takes as much from a healthy agent as from a weak one, and health does not
fall below zero.

Tiles in simulations are harvested as the rules say before they are shifted, and terrain that was seen stays in memory
as it was. What the policy sees of the terrain is the network's prediction: with its tiles, which say how sure they are,
memory and decisions are foreseen better than with the rules' tiles.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.layers import ENTITY_SCALES
from analysis.world_model.rules import Rules
from analysis.world_model.scene import (
    ITEM_TYPES,
    KINDS,
    MOVES,
    UNKNOWN,
    VITAL_LEVELS,
    VITAL_STEP,
    VITALS,
    Rows,
    SceneShape,
    SoftScene,
    framed,
    later,
    moved_terrain,
    shift,
    view_of,
    with_seen,
    with_view,
)

Bottleneck = Literal["sphere", "gaussian"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network."""

    hidden: int = 256
    groups: int = 16  # categorical variables in a latent state
    classes: int = 16  # values of each
    embedding: int = 256
    bottleneck: int = 128
    channels: int = 24

    @property
    def latent(self) -> int:
        """Length of a latent state."""
        return self.groups * self.classes


@dataclass(frozen=True)
class WorldState(Rows):
    """The world's state in B simulations."""

    hidden: torch.Tensor  # deterministic part, (B, hidden)
    latent: torch.Tensor  # one-hot vectors of all groups, (B, latent)


@dataclass(frozen=True)
class Prediction(Rows):
    """What the decoder says of a tick, in logits where it is about categories."""

    scene: SoftScene
    material: torch.Tensor  # logits, (B, materials, V)
    kinds: torch.Tensor  # logits, (B, kinds, V)
    target: torch.Tensor  # logits, (B, V)
    health: torch.Tensor  # (B, V)
    vitals: torch.Tensor  # logits, (B, 3, levels)
    item_type: torch.Tensor  # logits, (B, slots, types)
    legal: torch.Tensor  # logits, (B, options)
    move: torch.Tensor  # logits of the agent's own displacement, (B, moves)
    reward: torch.Tensor  # for the last action, in its standard deviations from its mean, (B,)
    end: torch.Tensor  # logit that the life ended with the last action, (B,)


CHANGES = 2 * VITAL_LEVELS - 1
"""Changes in levels: -20, -19 up to 20."""
_LEVEL_FLOOR = 1e-4


def spread_levels(vitals: torch.Tensor) -> torch.Tensor:
    """Share each vital between the two levels nearest to it, so that their mean is the vital: (B, 3) to (B, 3, levels).

    Args:
        vitals: divided by 100.
    """
    levels = torch.arange(VITAL_LEVELS, device=vitals.device)
    return (1 - (vitals.unsqueeze(2) * 100 / VITAL_STEP - levels).abs()).clamp(min=0)


def changed_levels(before: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of levels after a change, (B, 3, levels). No change leads beyond the scale.

    Args:
        before: probabilities of levels, (B, 3, levels).
        change: logits of changes, (B, 3, CHANGES).
    """
    paths = torch.einsum("bvc,lcm->bvlm", change.softmax(dim=2), _destinations(before.device, before.dtype))
    probability = torch.einsum("bvl,bvlm->bvm", before, paths)
    return (probability * (1 - VITAL_LEVELS * _LEVEL_FLOOR) + _LEVEL_FLOOR).log()


@functools.cache
def _destinations(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Return 1 where a change leads from a level to another, else 0, (levels, changes, levels)."""
    levels, changes = torch.arange(VITAL_LEVELS, device=device), torch.arange(CHANGES, device=device)
    after = (levels.unsqueeze(1) + changes - (VITAL_LEVELS - 1)).clamp(0, VITAL_LEVELS - 1)  # (levels, changes)
    return torch.nn.functional.one_hot(after, VITAL_LEVELS).to(dtype)


def expected(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the mean of distributions over levels, divided by 100, (..., levels) to (...)."""
    levels = torch.arange(VITAL_LEVELS, device=probabilities.device) * (VITAL_STEP / 100)
    return probabilities @ levels


def median(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the median of distributions over levels, divided by 100, (..., levels) to (...).

    A vital between two levels is shared between them, so it is the mean of the median level and those next to it.
    """
    levels = torch.arange(VITAL_LEVELS, device=probabilities.device)
    middle = (probabilities.cumsum(dim=-1) < 0.5).sum(dim=-1, keepdim=True)
    near = probabilities * ((levels - middle).abs() <= 1)
    return expected(near / near.sum(dim=-1, keepdim=True))


_FLOOR = 0.01
_START_LOGIT = 3.0
_NO_CHANGE_LOGIT = 5.0
"""Logit that a vital does not change from what the rules say, before training; all other changes share a fifth."""
_NEAR = 1
"""Tiles on each side of the agent that legal actions and changes of vitals are read from."""


class WorldNetwork(nn.Module):
    """All weights of a world model but the policy's."""

    own_mean: torch.Tensor
    own_step: torch.Tensor
    item_step: torch.Tensor
    centre: torch.Tensor

    def __init__(
        self, shape: SceneShape, sizes: Sizes, action: int, memory: tuple[int, int], vitals: list[int],
        position: list[int] | None, kind: Bottleneck, sees_body: bool = True,
    ):  # fmt: skip
        """Build it.

        Args:
            action: length of an action's code.
            memory: layers of the policy's memory, and units of each.
            vitals: places of the vitals in `Scene.own`.
            position: places of row and column in it; None if the policy does not see them.
            sees_body: whether the policy sees the vitals.
        """
        super().__init__()
        self.action, self.sees_body = action, sees_body
        self.rules = Rules.of_game()  # of the world that is simulated
        self.follows_rules = True  # False in a world with rules of its own
        self.shape, self.sizes, self.kind, self.vitals, self.position = shape, sizes, kind, vitals, position
        channels, hidden = sizes.channels, sizes.hidden
        small = ((shape.side + 1) // 2 + 1) // 2  # side of a view after two strides of 2
        self.see = nn.Sequential(
            nn.Conv2d(shape.planes, channels, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ELU(), nn.Flatten(),
        )  # fmt: skip
        self.embed = nn.Sequential(nn.Linear(channels * small**2 + shape.numbers, sizes.embedding), nn.ELU())
        double = 2 if kind == "gaussian" else 1
        self.squeeze = nn.Sequential(
            nn.Linear(3 * sizes.embedding, hidden), nn.ELU(), nn.Linear(hidden, double * sizes.bottleneck)
        )
        self.unsqueeze = nn.Sequential(nn.Linear(sizes.bottleneck, hidden), nn.ELU())
        self.start_hidden = nn.Linear(hidden, hidden)
        self.memory = memory
        self.start_memory = nn.Linear(hidden, 2 * math.prod(memory))
        self.enter = nn.Sequential(nn.Linear(sizes.latent + action, hidden), nn.LayerNorm(hidden), nn.ELU())
        self.update = nn.GRUCell(hidden, hidden)
        self.settle = nn.LayerNorm(hidden)
        self.prior = nn.Sequential(nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, sizes.latent))
        self.posterior = nn.Sequential(
            nn.Linear(hidden + sizes.embedding, hidden), nn.ELU(), nn.Linear(hidden, sizes.latent)
        )
        state = hidden + sizes.latent
        self.read = nn.Sequential(nn.Linear(state + shape.numbers, hidden), nn.ELU())
        self.spread = nn.Linear(hidden, channels * small**2)
        self.paint = nn.Sequential(
            nn.Conv2d(shape.planes + channels + 2, channels, 3, padding=1), nn.ELU(),
            nn.Conv2d(channels, shape.planes, 3, padding=1),
        )  # fmt: skip
        around = len(MOVES) * (shape.materials + len(KINDS))
        self.say_move = nn.Sequential(
            nn.Linear(state + action + around, sizes.embedding // 4), nn.ELU(),
            nn.Linear(sizes.embedding // 4, len(MOVES)),
        )  # fmt: skip
        self.say_own = nn.Linear(hidden, shape.own)
        near = shape.planes * (2 * _NEAR + 1) ** 2
        self.look_around = nn.Sequential(nn.Linear(hidden + len(VITALS) * VITAL_LEVELS + near, hidden // 2), nn.ELU())
        self.say_vitals = nn.Linear(hidden // 2, len(VITALS) * CHANGES)
        self.say_type = nn.Linear(hidden, shape.slots * ITEM_TYPES)
        self.say_items = nn.Linear(hidden, shape.slots * shape.item)
        self.say_legal = nn.Linear(hidden + hidden // 2, shape.legal)
        self.say_rest = nn.Linear(hidden, 2)
        for last in (self.paint[-1], self.say_own, self.say_items, self.say_vitals):
            nn.init.zeros_(last.weight)  # type: ignore[arg-type]
            nn.init.zeros_(last.bias)  # type: ignore[arg-type]
        with torch.no_grad():
            self.say_vitals.bias.view(len(VITALS), CHANGES)[:, VITAL_LEVELS - 1] = _NO_CHANGE_LOGIT
        self.register_buffer("own_mean", torch.zeros(shape.own))
        self.register_buffer("own_step", torch.ones(shape.own))
        self.register_buffer("item_step", torch.ones(shape.item))
        rows = torch.linspace(-1, 1, shape.side)
        away = torch.maximum(rows.abs().unsqueeze(1), rows.abs().unsqueeze(0))
        self.register_buffer("away", away.view(1, 1, shape.side, shape.side), persistent=False)
        self.small = small
        middle = shape.side // 2
        centre = [(middle + row) * shape.side + middle + column for row, column in MOVES]
        self.register_buffer("centre", torch.tensor(centre), persistent=False)

    def blank(self, ticks: int) -> SoftScene:
        """Return scenes that show nothing but an agent with the mean of every number."""
        return replace(self.shape.blank(ticks), own=self.own_mean.expand(ticks, -1))

    def encode(self, scene: SoftScene) -> torch.Tensor:
        """Return the embedding of exact scenes, (B, embedding)."""
        view = scene.planes().unflatten(2, (self.shape.side, self.shape.side))
        embedded: torch.Tensor = self.embed(torch.cat([self.see(view), scene.numbers()], dim=1))
        return embedded

    def bottleneck(self, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Squeeze the embeddings of three ticks, (B, 3, embedding), and return the mean, and the log-variance if any.

        On the sphere, vectors have length 1.
        """
        squeezed = self.squeeze(context.flatten(1))
        if self.kind == "gaussian":
            mean, log_variance = squeezed.chunk(2, dim=1)
            return mean, log_variance.clamp(-8, 4)
        return functional.normalize(squeezed, dim=1), None

    def start(self, vector: torch.Tensor) -> tuple[torch.Tensor, MemoryState]:
        """Return the first deterministic state and the policy's memory before the first tick, given bottlenecks."""
        wide = self.unsqueeze(vector)
        hidden, cell = self.start_memory(wide).unflatten(1, (2, *self.memory)).permute(1, 2, 0, 3)  # (layers, B, units)
        return self.settle(self.start_hidden(wide)), MemoryState(hidden, cell)

    def step(self, state: WorldState, action: torch.Tensor) -> torch.Tensor:
        """Return the next deterministic state, (B, hidden)."""
        entering = self.enter(torch.cat([state.latent, action], dim=1))
        settled: torch.Tensor = self.settle(self.update(entering, state.hidden))
        return settled

    def prior_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the latent state, (B, groups, classes), without an observation."""
        return self._log_probabilities(self.prior(hidden))

    def posterior_logits(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the latent state given an observation, (B, groups, classes)."""
        return self._log_probabilities(self.posterior(torch.cat([hidden, embedded], dim=1)))

    def decode(self, state: WorldState, before: SoftScene, action: torch.Tensor, decided: bool = False) -> Prediction:
        """Predict a tick.

        Args:
            before: the scene of the tick before: real, predicted or blank.
            action: that led from there, (B, size); zeros after a blank one.
            decided: whether the agent makes its most probable move, with the gradients of the probabilities, rather
                than the mean of all moves, nobody walks where nobody can, tiles that were in view follow the game's
                rules, and the inventory stays as it is: what is predicted of both would drift when predictions follow
                from predictions.
        """
        levels = spread_levels(before.own[:, self.vitals])
        rules, ruled = self.rules, decided and self.follows_rules
        if self.follows_rules and self.sees_body:
            levels = rules.body_levels(levels, *rules.meals(before))
        if ruled:
            before = rules.harvested(before)
        whole = torch.cat([state.hidden, state.latent], dim=1)
        read = self.read(torch.cat([whole, before.numbers()], dim=1))
        planes = before.planes()
        near = planes[:, : self.shape.materials + len(KINDS), self.centre].flatten(1)
        move = self.say_move(torch.cat([whole, action, near], dim=1))
        if ruled:
            move = move.masked_fill(rules.blocked(before), -torch.inf)
        moved = move.softmax(dim=1)
        if decided:
            certain = functional.one_hot(move.argmax(dim=1), len(MOVES)).to(moved.dtype)
            moved = certain + moved - moved.detach()
        side = self.shape.side
        views = planes.unflatten(2, (side, side))
        materials, kinds = self.shape.materials, len(KINDS)
        frame, known_tiles = framed(views[:, :materials], before.terrain)
        ground = shift(views[:, :materials], moved, frame)
        shifted = torch.cat([ground, shift(views[:, materials:], moved)], dim=1)
        known = shift(views[:, :1], moved, known_tiles)
        small = self.spread(read).view(len(read), -1, self.small, self.small)
        large = functional.interpolate(small, size=(side, side), mode="nearest")
        away = self.away.expand(len(read), -1, -1, -1)  # type: ignore[operator]
        painted = self.paint(torch.cat([shifted, large, away, known], dim=1)).flatten(2)
        beside = slice(side // 2 - _NEAR, side // 2 + _NEAR + 1)
        beside_agent = shifted[:, :, beside, beside].flatten(1)  # its own tile and those next to it, (B, planes * 9)
        around = self.look_around(torch.cat([read, levels.flatten(1), beside_agent], dim=1))
        vitals = changed_levels(levels, self.say_vitals(around).view(-1, len(VITALS), CHANGES))
        shifted = shifted.flatten(2)
        material = (shifted[:, :materials] + _FLOOR).log() + painted[:, :materials]
        kind = _logit(shifted[:, materials : materials + kinds]) + painted[:, materials : materials + kinds]
        health = shifted[:, -2] + painted[:, -2]
        target = _logit(shifted[:, -1]) + painted[:, -1]
        kept_type = (before.item_type + _FLOOR).log()
        item_type = kept_type + self.say_type(read).view(-1, self.shape.slots, ITEM_TYPES)
        items = before.items + self.item_step * self.say_items(read).view(-1, self.shape.slots, self.shape.item)
        legal = self.say_legal(torch.cat([read, around], dim=1))
        reward, end = self._rest(read)
        types = before.item_type if ruled else item_type.softmax(dim=2)
        carried = before.items if ruled else items * (1 - types[:, :, :1])
        tiles, terrain = material.softmax(dim=1), moved_terrain(before.terrain, move.argmax(dim=1))
        if ruled:
            seen = view_of(terrain).flatten(1).unsqueeze(1) != UNKNOWN
            tiles = rules.stood_on(torch.where(seen, rules.respawned(ground.flatten(2)), tiles))
        scene = SoftScene(
            tiles, kind.sigmoid(), health, target.sigmoid(), self._own(before, read, vitals, moved), types,
            carried, legal.sigmoid(), (with_seen if ruled else with_view)(terrain, tiles.argmax(dim=1)), before.seen,
            later(before.since, move.argmax(dim=1)),
        )  # fmt: skip
        return Prediction(scene, material, kind, target, health, vitals, item_type, legal, move, reward, end)

    def outcome(self, state: WorldState, before: SoftScene) -> tuple[torch.Tensor, torch.Tensor]:
        """Predict only the reward and the logit of the end, (B,) each; arguments as for `decode`."""
        return self._rest(self.read(torch.cat([state.hidden, state.latent, before.numbers()], dim=1)))

    def _rest(self, read: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        reward, end = self.say_rest(read).unbind(1)
        return reward, end - _START_LOGIT

    def _own(self, before: SoftScene, read: torch.Tensor, vitals: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        """The agent's own row: changed columns, expected vitals, and the position that its move leads to."""
        own = before.own + self.own_step * self.say_own(read)
        places, values = list(self.vitals), list(expected(vitals.softmax(dim=2)).unbind(1))
        if self.position is not None:
            path = moved @ moved.new_tensor(MOVES) / ENTITY_SCALES["row"]  # (B, 2)
            places += self.position
            values += (before.own[:, self.position] + path).unbind(1)
        return own.index_copy(1, torch.tensor(places), torch.stack(values, dim=1))

    def _log_probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """Mix 1% of an even distribution into each group, so that no value is ever impossible."""
        probabilities = scores.view(-1, self.sizes.groups, self.sizes.classes).softmax(dim=2)
        return (0.99 * probabilities + 0.01 / self.sizes.classes).log()


def drawn(log_probabilities: torch.Tensor, dice: torch.Generator | torch.Tensor | None) -> torch.Tensor:
    """Draw a latent state, (B, groups, classes) to (B, latent), one-hot with the gradients of the probabilities.

    Args:
        dice: generator of random numbers, or uniform numbers, (B, groups); None for the most probable values.
    """
    probabilities = log_probabilities.exp()
    if dice is None:
        place = log_probabilities.argmax(dim=2)
    else:
        uniform = dice if isinstance(dice, torch.Tensor) else torch.rand(probabilities.shape[:2], generator=dice)
        sums = probabilities.detach().cumsum(dim=2)
        place = (sums < uniform.unsqueeze(2) * sums[:, :, -1:]).sum(dim=2).clamp(max=probabilities.shape[2] - 1)
    hard = functional.one_hot(place, probabilities.shape[2]).to(probabilities.dtype)
    return (hard + probabilities - probabilities.detach()).flatten(1)


def _logit(probabilities: torch.Tensor) -> torch.Tensor:
    kept = probabilities.clamp(0, 1) * (1 - 2 * _FLOOR) + _FLOOR
    return (kept / (1 - kept)).log()
