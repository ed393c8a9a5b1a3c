"""The subspace that is learnt is the one that was built, and a network without the cue gives chance."""

import numpy as np
import pytest
import torch

from agent_zoo.base import RecurrentPolicy
from analysis.dynamics import alignment
from analysis.dynamics.alignment import (
    Reader,
    Situations,
    Sources,
    along,
    decisions,
    fitted_reader,
    follows,
    learnt_subspace,
)
from tests.analysis.dynamics.subspaces.latches import LIVES, UNITS, latch, situations

LAYER = "lstm_cell"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "STARTS", 1)
    monkeypatch.setattr(alignment, "STEPS", 200)


def halves(whole: Situations) -> tuple[Situations, Situations]:
    first = whole.life < LIVES // 2
    return whole.take(np.flatnonzero(first)), whole.take(np.flatnonzero(~first))


def learn(policy: RecurrentPolicy) -> tuple[np.ndarray, Reader, Situations]:
    train, test = halves(situations(policy))
    with torch.no_grad():
        reader = fitted_reader(decisions(policy, LAYER, train), train.label)
    return learnt_subspace(policy, LAYER, train, reader, 1, seed=0), reader, test


def test_the_planted_subspace_is_found_and_its_exchange_turns_the_actions() -> None:
    policy = latch()
    subspace, reader, test = learn(policy)
    planted = np.eye(UNITS)[0] - np.eye(UNITS)[1]
    assert abs(subspace[0] @ planted) / np.sqrt(2) > 0.98
    pairs = Sources(test).pairs(400, np.random.default_rng(1))

    def share(subspace: np.ndarray) -> float:
        return float(follows(policy, LAYER, test, reader, along(torch.from_numpy(subspace).float()), pairs).mean())

    assert share(subspace) == 1
    beside = np.eye(UNITS)[2:3] + np.eye(UNITS)[3:4]  # the other cue
    assert share(beside / np.sqrt(2)) == pytest.approx(0.5, abs=0.1)


def test_a_network_whose_heads_do_not_read_the_cue_gives_chance() -> None:
    policy = latch(heads_read=False)
    subspace, reader, test = learn(policy)
    assert np.linalg.norm(subspace) == pytest.approx(1, abs=1e-5)
    pairs = Sources(test).pairs(400, np.random.default_rng(1))
    right = follows(policy, LAYER, test, reader, along(torch.from_numpy(subspace).float()), pairs)
    assert right.mean() == pytest.approx(0.5, abs=0.1)
    assert follows(policy, LAYER, test, reader, lambda own, theirs: theirs, pairs).mean() == right.mean()


def test_exchanges_are_within_ticks_and_leave_everything_else_alone() -> None:
    states = np.random.default_rng(0).normal(size=(200, UNITS)) * [1, 1, 0.5, 0, 1e-3, 1]
    components = alignment.varying(states)
    assert components.shape == (4, UNITS) and np.abs(components[:, 3:5]).max() < 0.01
    np.testing.assert_allclose(components @ components.T, np.eye(4), atol=1e-6)
    random = np.random.default_rng(0)
    base, source = torch.from_numpy(random.normal(size=(2, 5, UNITS)))
    plane = torch.from_numpy(np.linalg.qr(random.normal(size=(UNITS, 2)))[0].T)
    exchanged = along(plane)(base, source)
    torch.testing.assert_close(exchanged @ plane.T, source @ plane.T)
    rest = torch.eye(UNITS, dtype=torch.float64) - plane.T @ plane
    torch.testing.assert_close(exchanged @ rest, base @ rest)
    whole = situations(latch())
    bases, sources = Sources(whole).pairs(2000, np.random.default_rng(0))
    assert len(bases) == 2000 and (whole.tick[bases] == whole.tick[sources]).all()
    assert (whole.life[bases] != whole.life[sources]).all()
    assert (whole.label[bases] == whole.label[sources]).mean() == pytest.approx(0.5, abs=0.04)
