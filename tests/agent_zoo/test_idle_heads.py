"""Choices that the game ignores: it does ignore them, and a loss that leaves them out counts all others."""

import functools
import math
from collections.abc import Iterator

import numpy as np
import pufferlib.vector
import pytest
import torch

from agent_zoo.network_parts.distribution import (
    DECIDED_BY,
    ILLEGAL,
    ActionDistribution,
    Choices,
    counted,
    entropy,
    log_probability,
)
from agent_zoo.observation import ActionHead, ObservationLayout
from reinforcement_learning.game.environment import make_environment
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.settings import EnvironmentSettings, RewardSettings, TaskSettings
from tests.conftest import AGENT, random_legal_actions
from tests.forager import forage
from tests.reinforcement_learning.game.test_fast_game import assert_equal, crowded, structured  # noqa: F401

HEADS = (
    ActionHead("Attack.Style", 3, None, None),
    ActionHead("Attack.Target", 3, 2, None),
    ActionHead("Move.Direction", 2, None, None),
)
STYLE, TARGET, MOVE = range(3)
NOBODY = 2


def distribution(target: list[list[float]]) -> ActionDistribution:
    """Agents that move and choose a style evenly, and a target with the given probabilities; 0 is illegal."""
    given = torch.tensor(target, requires_grad=True)
    everyone = torch.arange(len(given))
    logits = torch.where(given == 0, ILLEGAL, given.clamp(min=1e-9).log())
    even = [
        Choices(
            everyone, torch.full_like(everyone, head), torch.zeros(len(given), HEADS[head].size, requires_grad=True)
        )
        for head in (STYLE, MOVE)
    ]
    only = torch.zeros((len(given), len(HEADS)), dtype=torch.int64)
    return ActionDistribution(HEADS, only, [*even, Choices(everyone, torch.full_like(everyone, TARGET), logits)])


def test_a_style_counts_only_if_somebody_is_attacked_and_nobody_is_for_its_sake() -> None:
    chosen = distribution([[0.5, 0.25, 0.25]] * 2)
    actions = torch.tensor([[1, 0, 0], [1, NOBODY, 0]])  # the first agent attacks, the second does not
    assert counted(HEADS, actions).tolist() == [[True, True, True], [False, True, True]]
    attacked, spared = math.log(1 / 3) + math.log(0.5) + math.log(0.5), math.log(0.25) + math.log(0.5)
    assert log_probability(chosen, actions, ignore_idle=True).tolist() == pytest.approx([attacked, spared])
    all_heads = [attacked, math.log(1 / 3) + spared]
    assert log_probability(chosen, actions, ignore_idle=False).tolist() == pytest.approx(all_heads)
    probabilities = [0.5, 0.25, 0.25]
    chosen = distribution([probabilities])
    target = -sum(p * math.log(p) for p in probabilities)
    assert entropy(chosen, ignore_idle=True).item() == pytest.approx(0.75 * math.log(3) + target + math.log(2))
    assert entropy(chosen, ignore_idle=False).item() == pytest.approx(math.log(3) + target + math.log(2))
    # The gradient of the target's logits is that of the target's own entropy, however the style is chosen.
    chosen = distribution([[0.5, 0.25, 0.25]])
    logits = chosen.choices[2].logits
    (result,) = torch.autograd.grad(entropy(chosen, ignore_idle=True).sum(), logits, retain_graph=True)
    (expected,) = torch.autograd.grad(chosen.choices[2].entropy().sum(), logits)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(("only_target", "chance"), [(NOBODY, 0.0), (1, 1.0)])
def test_a_target_without_a_choice_decides_too(only_target: int, chance: float) -> None:
    chosen = distribution([[0.5, 0.25, 0.25]])
    only = torch.tensor([[0, only_target, 0]])
    bound = ActionDistribution(HEADS, only, chosen.choices[:2])
    assert entropy(bound, ignore_idle=True).item() == pytest.approx(chance * math.log(3) + math.log(2))


def test_a_probability_is_found_among_rows_by_the_environments_number() -> None:
    logits = torch.tensor([[0.5, 0.5, 1.0], [0.1, 0.2, 0.7]]).log()
    logits[0, 2] = ILLEGAL
    rows = Choices(torch.tensor([0, 2]), torch.tensor([1, 1]), logits, torch.tensor([[4, 7, -1], [4, 7, 9]]))
    known = ActionDistribution(HEADS, torch.tensor([[0, 0, 0], [0, 9, 0], [0, 0, 0]]), [rows])
    assert known.probability_of(1, 9).tolist() == pytest.approx([0, 1, 0.7])
    assert known.probability_of(1, 7).tolist() == pytest.approx([0.5, 0, 0.2])


@pytest.fixture(scope="module")
def pair(task: TaskSettings, crowded: EnvironmentSettings) -> list[pufferlib.vector.Serial]:  # noqa: F811
    """Two equal worlds in which agents meet, fight and trade."""
    # By the start kit's published rules a price closes itself for the next tick, whether or not anything was sold.
    rules = RewardSettings(as_published=False)
    make = functools.partial(make_environment, AGENT, crowded, task, ensure_maps(crowded), reward=rules)
    return [pufferlib.vector.make(make, backend=pufferlib.vector.Serial) for _ in range(2)]


def played(
    pair: list[pufferlib.vector.Serial], layout: ObservationLayout
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compare both worlds in each of 150 ticks; yield what foraging agents do, other legal actions, and what counts."""
    random = np.random.default_rng(0)
    for world in pair:
        world.async_reset([1])
    for _ in range(150):
        received = [world.recv() for world in pair]
        assert_equal(*received)
        observations = structured(received[0], pair[0])
        actions = forage(observations, layout, random)
        others = random_legal_actions(observations, layout, random)
        yield actions, others, counted(layout.heads, torch.from_numpy(actions)).numpy()


def test_the_game_ignores_them(pair: list[pufferlib.vector.Serial], layout: ObservationLayout) -> None:
    """Worlds stay equal byte by byte if all choices differ that do not count."""
    changed = np.zeros(len(layout.heads), dtype=int)
    for actions, others, counts in played(pair, layout):
        changed += (~counts & (others != actions)).sum(axis=0)
        pair[0].send(actions)
        pair[1].send(np.where(counts, actions, others))
    names = {layout.heads[column].name for column in np.flatnonzero(changed)}
    assert names == set(DECIDED_BY), "a choice that the test is about was never changed"


def test_the_game_does_not_ignore_the_others(pair: list[pufferlib.vector.Serial], layout: ObservationLayout) -> None:
    """Worlds part if the style of attacks on somebody differs."""
    style = next(column for column, head in enumerate(layout.heads) if head.name == "Attack.Style")
    with pytest.raises(AssertionError, match="differ"):
        for actions, others, counts in played(pair, layout):
            pair[0].send(actions)
            changed = actions.copy()
            changed[:, style] = np.where(counts, others, actions)[:, style]
            pair[1].send(changed)
