"""Edits at once and findings in simulations: planted values and differences are found, and none where none is."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.memory import MemoryState
from agent_zoo.soft_path import soft_tick
from analysis.interventions.edits.edit_options import EditOptions
from analysis.recorded.recorded_observation import packed_observation
from analysis.statistics.resampling import Estimate
from analysis.world_model.edits import QUANTITIES, Edits, changes_at_once, exact_play, first_order, made, soft_play
from analysis.world_model.findings import PARTS, LifeTicks, compared, taken, value_saliency
from analysis.world_model.imagination import imagine, informed_start
from analysis.world_model.model import WorldModel
from analysis.world_model.options import SETTLING
from analysis.world_model.outcomes import Row
from analysis.world_model.policy_interface import imagined_view
from analysis.world_model.scene import VITALS
from analysis.world_model.validation import InGame, Validated, draw_validation, sign_agreement, validated_rows
from analysis.world_model.windows import CONTEXT, Windows, as_windows, read_sequences
from tests.agent_zoo.test_soft_path import doubled
from tests.analysis.world_model.test_edits import critic_direction, edits_of
from tests.command import assert_refuses
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


def test_signs_are_compared_where_the_game_is_sure_and_drawn(tmp_path: Path) -> None:
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
    for runs in ("a", "ab"):
        draw_validation([row for run in runs for row in planted(run, 1, -3)], tmp_path / f"{runs}.png")
        assert (tmp_path / f"{runs}.png").read_bytes().startswith(b"\x89PNG")


LIVES, LENGTH, UNITS = 120, 10, 6
RANDOM = np.random.default_rng(0)
MIXING = RANDOM.standard_normal((3, UNITS))


def planted_lives(far: float = 0.5, shuffled: bool = False) -> LifeTicks:
    """Lives whose memory holds their vitals, in two places of the space that are far from each other.

    Args:
        far: share of the lives that are in the second place.
        shuffled: whether the memory holds the vitals of other ticks.
    """
    life = np.repeat(np.arange(LIVES), LENGTH)
    vitals = RANDOM.uniform(0, 100, (len(life), 3))
    held = RANDOM.permutation(vitals) if shuffled else vitals
    states = held @ MIXING / 100 + 0.01 * RANDOM.standard_normal((len(life), UNITS))
    place = np.zeros((len(life), 1))
    place[life < far * LIVES] = 50
    both = np.concatenate([states, np.repeat(place, 8, axis=1)], axis=1)
    return {"life": life, "lstm_cell": both, "vitals": vitals}


def by_name(result: list[Row]) -> dict[str, Row]:
    return {one["finding"]: one for one in result}


def test_lives_of_the_same_kind_have_the_same_findings_and_few_are_refused() -> None:
    for one in compared(planted_lives(), planted_lives(), seed=1):
        assert one["difference"].low < 0.02 and one["difference"].high > -0.02
        assert one["recorded"].low <= one["recorded"].value <= one["recorded"].high and one["lives"] == LIVES // 2
        if one["finding"].startswith("score"):
            assert one["recorded"].value > 0.99 and one["simulated"].value > 0.99
    # Half of the recorded lives are far away and none of the simulated ones: shares are half off.
    same, other = (by_name(compared(planted_lives(), planted_lives(far), seed=1)) for far in (0.5, 0.0))
    name = "distance of cluster shares"
    assert other[name]["simulated"].value > 0.4 and other[name]["difference"].low > 0
    assert abs(same[name]["difference"].value) < 0.1
    few = taken(planted_lives(), np.arange(15 * LENGTH))
    assert_refuses("a comparison needs 16 recorded lives on test maps, and there are 15", compared, few, few, 0)


def test_lost_vitals_other_spreads_and_other_ratios_are_noticed() -> None:
    result = by_name(compared(planted_lives(), planted_lives(shuffled=True), seed=1))
    for name in VITALS:
        score, error = result[f"score of a probe of {name}"], result[f"error of a probe of {name}"]
        assert score["recorded"].value > 0.99
        assert score["simulated"].value == pytest.approx(-1, abs=0.2)  # as two uniform numbers
        assert score["difference"].high < -1 and error["difference"].low > 20
        assert error["simulated"].value == pytest.approx(100 / 3, abs=3)
    narrow = planted_lives()
    narrow["vitals"] = 50 + narrow["vitals"] / 10
    result = by_name(compared(planted_lives(), narrow, seed=1))
    for name in VITALS:
        spread = result[f"spread of {name}"]
        assert spread["recorded"].value == pytest.approx(100 / 12**0.5, abs=2)  # of a uniform distribution
        assert spread["simulated"].value == pytest.approx(10 / 12**0.5, abs=0.2) and spread["difference"].high < -20
    plain = planted_lives()
    above, below = RANDOM.uniform(0, 1, (2, len(plain["life"])))
    same, half = ({**plain, "share": np.stack([one, below + 1], axis=1)} for one in (above, above / 2))
    result = by_name(compared(same, half, seed=1))["share"]
    assert result["recorded"].value == pytest.approx(1 / 3, abs=0.02)
    assert result["simulated"].value == pytest.approx(result["recorded"].value / 2)
    assert result["difference"].high < 0


def test_the_values_saliency_is_its_gradient_times_input(recorded) -> None:
    """Own row and tiles are changed a little, and the value follows the gradient."""
    model, windows = recorded.model(), recorded.windows()[0]
    there, scene = windows.at(CONTEXT)
    soft, before = scene.soft(model.network.shape.materials), windows.memory(CONTEXT - 1, there)
    around = windows.around.take(there)
    result = value_saliency(model, soft, around, before)
    shares = [one for name, one in result.items() if name.startswith("share")]
    assert len(shares) == len(PARTS) and all((one >= 0).all() for one in shares)
    assert np.sum([one[:, 0] for one in shares], axis=0) == pytest.approx(shares[0][:, 1])

    # In double precision, so that steps can be tiny: else some lead over the kink of a rectifier.
    precise = copy.deepcopy(model.policy).double()
    kind_means = model.stats.kind_means.double()
    memory = replace(before, hidden=before.hidden.double(), cell=before.cell.double())

    def value(own: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            view = imagined_view(replace(soft, own=own), kind_means, around, model.layout)
            return soft_tick(precise, doubled(view.observation), memory)[0].value.numpy()

    own, size = soft.own.double(), 1e-6
    for name, place in zip(VITALS, model.network.vitals, strict=True):
        step = torch.zeros_like(own)
        step[:, place] = size
        slope = (value(own + step) - value(own - step)) / (2 * 100 * size)  # own vitals are read in hundreds of points
        assert result[f"change of the value per point of {name}"][:, 0] == pytest.approx(slope, rel=1e-3, abs=1e-8)
