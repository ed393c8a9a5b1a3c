"""Edits are made at once as in the game, their gradients are those of finite differences, and signs are compared."""

from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.memory import MemoryState
from analysis.interventions.edits.edit_options import EditOptions
from analysis.recorded.recorded_observation import packed_observation
from analysis.statistics.resampling import Estimate
from analysis.world_model.edits import QUANTITIES, Edits, changes_at_once, exact_play, first_order, made, soft_play
from analysis.world_model.imagination import imagine, informed_start
from analysis.world_model.model import WorldModel
from analysis.world_model.options import SETTLING
from analysis.world_model.validation import InGame, Validated, draw_validation, sign_agreement, validated_rows
from analysis.world_model.windows import CONTEXT, Windows, as_windows, read_sequences
from tests.analysis.world_model.test_edits import critic_direction, edits_of
from tests.planted_interventions import unit

TICKS = SETTLING + 3


@pytest.fixture(scope="module")
def starts(model, recorded):
    """Windows with the observations of all their records."""
    sequences = next(read_sequences(recorded.dump, recorded.train, TICKS - 1, 12, 0))
    windows = as_windows(sequences, model.policy, model.info)
    return windows, packed_observation(sequences.records, model.layout, model.policy.mask)


def edit(model: WorldModel, recorded, directions, options: EditOptions) -> Edits:
    (made_of_it,) = edits_of(model, recorded, directions, options)
    return made_of_it


@pytest.mark.parametrize(
    "options",
    [
        EditOptions(edit="steer", direction="ic_1", dose="2"), EditOptions(edit="clear"),
        EditOptions(edit="collapse", direction="ic_1", change=True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layer", ["lstm_cell", "lstm_hidden"])
def test_the_gradient_is_that_of_finite_differences(model, recorded, starts, options, layer) -> None:
    """Moving each state by a tenth of what the edit does to it, in both directions."""
    windows: Windows = starts[0]
    direction = unit(1, 16, "ic_1", layer)
    edits = edit(model, recorded, [direction], options)
    before = windows.memory(CONTEXT - 2)
    play = exact_play(model.policy, starts[1].take(windows.starts + CONTEXT - 1))
    slopes = first_order(model.policy, play, before, edits, 0)
    share = 0.1

    def moved(far: float) -> torch.Tensor:
        begun = edits.begin(before, 0)
        memory = MemoryState(*(torch.lerp(getattr(before, of), getattr(begun, of), far) for of in ("hidden", "cell")))
        hooks = edits.hooks(before).items()
        partly = {name: lambda states, hook=hook: torch.lerp(states, hook(states), far) for name, hook in hooks}
        with torch.no_grad(), model.policy.hooked(partly):
            return play(memory)[0]

    differences = (moved(share) - moved(-share)) / (2 * share)
    largest = float(slopes.abs().max())
    torch.testing.assert_close(slopes, differences, atol=0.03 * largest, rtol=0)
    assert largest > 5e-5 and slopes.shape == (len(windows), len(QUANTITIES))
    torch.testing.assert_close(slopes[:, 1:6].sum(dim=1), torch.zeros(len(windows)), atol=1e-5, rtol=0)


def test_a_planted_value_is_predicted_replayed_and_simulated(model, recorded, starts) -> None:
    """The value is held at 8 by an edit behind the memory, on which it depends linearly: each change is 8 - value."""
    edits = edit(model, recorded, [critic_direction(model)], EditOptions(edit="steer", direction="value", dose="1.5"))
    windows, observation = starts
    for how in ("in every tick", "once"):
        result = changes_at_once(model, windows, observation, edits, how, TICKS, 3)
        first = SETTLING if how == "in every tick" else 0
        wanted = np.full(len(windows), np.nan)
        for window in range(len(windows)):
            begin, end = CONTEXT - 1 + first, min(int(windows.lengths[window]), CONTEXT - 1 + TICKS)
            if begin < end:  # a life may end before
                ticks = torch.arange(begin, end)
                values = _recorded_values(model, windows, observation, window, ticks)
                wanted[window] = 8 - values.mean()
        np.testing.assert_allclose(result["replayed"][:, 0], wanted, atol=2e-3)
        np.testing.assert_allclose(result["predicted"][:, 0], wanted, atol=2e-3)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(3)
            start = informed_start(model, windows, generator)
            imagined = list(imagine(model, start, 1, generator))
        if how == "once":
            one = changes_at_once(model, windows, observation, edits, how, 1, 3)["simulated"][:, 0]
            np.testing.assert_allclose(one, 8 - imagined[0].choices.value.numpy(), atol=1e-3)
        assert np.isfinite(result["simulated"][:, 0]).any()


@torch.no_grad()
def _recorded_values(model, windows, observation, window: int, ticks: torch.Tensor) -> np.ndarray:
    values = []
    for tick in ticks:
        play = exact_play(model.policy, observation.take((windows.starts[window] + tick).view(1)))
        values.append(play(windows.memory(int(tick) - 1, torch.tensor([window])))[0][0, 0])
    return np.array(values)


def test_simulated_changes_are_those_beside_the_same_state(model, recorded, starts) -> None:
    edits = edit(model, recorded, [unit(1, 16, "ic_1", "lstm_cell")], EditOptions(edit="collapse", direction="ic_1"))
    windows, observation = starts
    result = changes_at_once(model, windows, observation, edits, "in every tick", TICKS, 3)["simulated"]
    generator = torch.Generator().manual_seed(3)
    changes = [[] for _ in range(len(windows))]
    with torch.no_grad():
        start = informed_start(model, windows, generator)
        before, alive = start.memory, np.ones(len(start), bool)
        for number, tick in enumerate(imagine(model, start, TICKS, generator, (), edits)):
            play = soft_play(model.policy, tick.view.observation)
            change = made(model.policy, play, before, edits, number)[0] - play(before)[0]
            for window in np.flatnonzero(alive) if number >= SETTLING else ():
                changes[window].append(change[window].numpy())
            alive &= (torch.rand(len(start), generator=generator) >= tick.end).numpy()
            before = tick.memory
    wanted = np.stack([np.mean(item, axis=0) if item else np.full(len(QUANTITIES), np.nan) for item in changes])
    np.testing.assert_allclose(result, wanted, atol=1e-5)


def planted(run: str, predicted: float, real: float, sure: bool = True) -> list[Validated]:
    """Rows of an edit whose changes are all `predicted` by all sides, and `real` in the game."""
    changes = {side: np.full((6, len(QUANTITIES)), predicted) for side in ("predicted", "replayed", "simulated")}
    ends = (real - 0.1, real + 0.1) if sure else (-1.0, 1.0)
    game = {name: Estimate(real, *ends) for name in QUANTITIES}
    return validated_rows(run, f"edit-{run}", InGame(None, "in every tick", game, 4), changes, np.arange(6), seed=0)


def test_signs_are_compared_where_the_game_is_sure() -> None:
    rows = [*planted("a", 1, 2), *planted("b", -1, -3), *planted("c", 1, -2), *planted("d", 1, 0.5, sure=False)]
    assert [row.predicted_agrees for row in rows[:: len(QUANTITIES)]] == ["yes", "yes", "no", ""]
    assert all(row.simulated.low == row.simulated.high == row.simulated.value for row in rows) and rows[0].lives == 6
    values = [item for item in sign_agreement(rows) if item["quantities"] == "value"]
    for item in values:
        assert (item["changes"], item["of"]) == (3, 4) and item["agree"].value == pytest.approx(2 / 3)
        assert 0 <= item["agree"].low < 2 / 3 < item["agree"].high <= 1
        # a: of b, c, d; b: of a, c, d; c: of a, b, d
        assert item["other_edits"] == pytest.approx((2 + 0 + 1) / 9)
        assert item["correlation"].value == pytest.approx(np.corrcoef([1, -1, 1, 1], [2, -3, -2, 0.5])[0, 1])
        assert -1 <= item["correlation"].low < item["correlation"].value < item["correlation"].high <= 1
    (two, *_) = sign_agreement([*planted("a", 1, 2), *planted("b", -1, -3)])
    assert np.isnan(two["agree"].low), "two runs say nothing of others"


@pytest.mark.parametrize("runs", ["a", "ab"])
def test_the_figure_is_drawn(tmp_path: Path, runs: str) -> None:
    rows = [row for number, run in enumerate(runs) for row in planted(run, number + 1, number - 3)]
    draw_validation(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
