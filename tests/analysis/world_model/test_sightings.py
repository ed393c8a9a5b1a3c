"""Where others are expected: planted drifts, and planted networks, are found and weighed as they deserve."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from analysis.world_model import unroll
from analysis.world_model.model import LONGEST, REACH, Sightings, WorldModel, last_seen, load_model, save_model
from analysis.world_model.scene import KINDS, MOVES, SceneShape, SoftScene, later
from analysis.world_model.unroll import fit_sightings
from tests.analysis.world_model.conftest import HORIZON, Recorded
from tests.command import assert_refuses

SIDE, EPISODES = 9, 60
EAST, NORTH = MOVES.index((0, 1)), MOVES.index((-1, 0))
PLANTED = 3
"""Ticks of the planted windows."""


def scene(present: torch.Tensor) -> SoftScene:
    """Agents that see these others, (B, kinds, SIDE, SIDE)."""
    count = len(present)
    blank = SceneShape(SIDE, 16, own=5, slots=1, item=1, legal=1).blank(count)
    return replace(blank, kinds=present.flatten(2), seen=present.flatten(2), since=torch.zeros(count, 3).long())


def somebody(row: int, column: int) -> torch.Tensor:
    present = torch.zeros(1, len(KINDS), SIDE, SIDE)
    present[0, 1, row, column] = 1
    return present


def walked(before: SoftScene, *moves: int) -> SoftScene:
    for move in moves:
        before = replace(before, since=later(before.since, torch.tensor([move])))
    return before


def test_others_stay_on_the_map_while_the_agent_walks() -> None:
    start = scene(somebody(4, 6))
    assert torch.equal(last_seen(start, 0), somebody(4, 6))
    assert torch.equal(last_seen(walked(start, EAST, EAST, NORTH), 0), somebody(5, 4))
    gone = walked(start, *[EAST] * 7)
    assert not last_seen(gone, 0).any() and last_seen(gone, 1)[0, 1, 5, 0] == 1, "one column out of view"
    assert torch.equal(last_seen(walked(gone, *[MOVES.index((0, -1))] * 7), 0), somebody(4, 6)), "and back"
    blank = SceneShape(SIDE, 16, own=5, slots=1, item=1, legal=1).blank(2)
    assert walked(blank.take(torch.tensor([0])), EAST).since.tolist() == [[-1, 0, 0]]
    guess = replace(blank, kinds=torch.rand(2, len(KINDS), SIDE**2), since=torch.tensor([[-1, 0, 0], [1, 0, 0]]))
    for shown in (anything().weighed(guess), anything().drifted(guess)):
        assert torch.equal(shown.kinds[0], guess.kinds[0]) and not torch.equal(shown.kinds[1], guess.kinds[1])


def anything() -> Sightings:
    shape = (LONGEST, len(KINDS))
    return Sightings(torch.zeros(*shape, 2 * REACH + 1, 2 * REACH + 1), torch.full(shape, 0.5), torch.ones(*shape, 3))


def test_later_ticks_are_like_the_last_that_are_odd_or_even_as_they_are() -> None:
    base = torch.arange(LONGEST).float().view(-1, 1).repeat(1, len(KINDS)) / 100 + 0.1
    for ticks, age in ((1, 0), (15, 14), (16, 15), (17, 14), (18, 15), (33, 14)):
        start = replace(scene(somebody(0, 0)), since=torch.tensor([[ticks, 0, 0]]))
        shown = replace(anything(), base=base).drifted(start).kinds
        torch.testing.assert_close(shown, torch.full_like(shown, float(base[age, 0])))


def planted(network_knows: bool, drifts: bool) -> Iterator[list[tuple[SoftScene, torch.Tensor]]]:
    """Windows in which others go a column east in each tick, or anywhere; a network knows where, or nothing."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(EPISODES):
        present = (torch.rand(8, len(KINDS), SIDE, SIDE, generator=generator) < 0.03).float()
        start, pairs = scene(present), []
        for tick in range(1, PLANTED + 1):
            real = present.roll(tick, dims=3)
            real[..., :tick] = 0
            if not drifts:
                real = (torch.rand(real.shape, generator=generator) < 0.03).float()
            message = real.flatten(2) * 0.8 + 0.1 if network_knows else torch.full_like(start.kinds, 0.2)
            since = torch.tensor([[tick, 0, 0]]).repeat(len(present), 1)
            pairs.append((replace(start, kinds=message, since=since), real.flatten(2)))
        yield pairs


def fitted(monkeypatch: pytest.MonkeyPatch, **known: bool) -> Sightings:
    windows = list(planted(**known))
    monkeypatch.setattr(unroll, "_predicted", lambda network, pairs, generator: iter(pairs))
    return fit_sightings(None, windows, torch.Generator())  # type: ignore[arg-type]


def test_a_planted_drift_is_found_and_used_also_in_long_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = fitted(monkeypatch, network_knows=False, drifts=True)
    for tick in range(1, PLANTED + 1):
        kernel = shown.kernel[tick - 1, 1]
        east = (REACH, REACH - tick)  # who stands here was `tick` columns to the west
        assert kernel[east] > 0.8 and kernel.sum() - kernel[east] < 0.2
        start = replace(scene(somebody(4, 3)), since=torch.tensor([[tick, 0, 0]]))
        expected = replace(start, kinds=torch.full_like(start.kinds, 0.2))
        for scenes in (shown.weighed(expected), shown.drifted(expected)):
            assert int(scenes.kinds[0, 1].argmax()) == 4 * SIDE + 3 + tick
    last = shown.kernel[PLANTED - 1 :]
    assert torch.equal(last[0], last[2]), "no window is as long, so it is as two ticks before"
    # `train_world_model.py --horizon` goes up to 64.
    windows = [pairs * LONGEST for pairs in planted(network_knows=False, drifts=True)]
    monkeypatch.setattr(unroll, "_predicted", lambda network, pairs, generator: iter(pairs))
    assert len(fit_sightings(None, windows[:2], torch.Generator()).kernel) == LONGEST  # type: ignore[arg-type]


def test_a_network_that_knows_is_used_where_others_go_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = fitted(monkeypatch, network_knows=True, drifts=False)
    assert (shown.weights[:PLANTED, :, 0] > 1).all() and shown.kernel[:PLANTED].abs().max() < 0.2
    start = replace(scene(somebody(4, 3)), since=torch.tensor([[1, 0, 0]]))
    message = torch.full_like(start.kinds, 0.1)
    message[0, 1, 11] = 0.9
    weighed = shown.weighed(replace(start, kinds=message.requires_grad_()))
    assert int(weighed.kinds[0, 1].argmax()) == 11
    weighed.kinds.sum().backward()
    assert message.grad is not None and (message.grad[0, 1] > 0).any(), "gradients reach what was predicted"


def test_of_real_lives_both_together_say_more_than_either(model: WorldModel, recorded: Recorded) -> None:
    """By the log-likelihood on what they were fitted to, so whatever this processor makes of the network."""
    windows = recorded.windows()
    shown = fit_sightings(model.network, windows, torch.Generator().manual_seed(3))
    again, costs = torch.Generator().manual_seed(3), torch.zeros(3)
    for window in windows:
        for predicted, real in unroll._predicted(model.network, window, again):
            assert (predicted.since[:, 0] >= 1).all() and (predicted.since[:, 1:].abs().sum(dim=1) <= HORIZON).all()
            sides = (shown.weighed(predicted), shown.drifted(predicted), predicted)
            costs += torch.stack([binary_cross_entropy(side.kinds, real, reduction="sum") for side in sides]).detach()
    assert costs[0] < costs[1] and costs[0] < costs[2], costs


def test_they_are_kept_with_the_model_and_models_without_them_can_be_read(
    model: WorldModel, recorded: Recorded, tmp_path: Path
) -> None:
    origin = recorded.origin()
    save_model(tmp_path / "with", replace(model, sightings=anything()), origin)
    again, _ = load_model(tmp_path / "with")
    assert again.sightings and all(
        torch.equal(one, other)
        for one, other in zip(vars(again.sightings).values(), vars(anything()).values(), strict=True)
    )
    bent = replace(anything(), base=torch.zeros(3, 3))
    save_model(tmp_path / "bent", replace(model, sightings=bent), origin)
    assert_refuses(r"sightings/base has the shape \(3, 3\)", load_model, tmp_path / "bent")
    save_model(tmp_path / "without", replace(model, sightings=None), origin)
    older, _ = load_model(tmp_path / "without")
    guess = scene(somebody(4, 3))
    assert older.sightings is None and older.weighed(guess) is guess and older.drifted(guess) is guess
