"""A codebook learnt along with the policy: its states, losses, weight and restarts, and exact resuming."""

import copy
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agent_zoo.data_parallel import ALONE
from agent_zoo.semantic_module import CODEBOOK_SPEED, quantisation_loss
from reinforcement_learning.game.life import Life
from reinforcement_learning.settings import SemanticSettings, Settings
from reinforcement_learning.training.ppo import make_optimizer, minibatches, set_learning_rate, update
from reinforcement_learning.training.run_folder import TrainingState
from reinforcement_learning.training.semantic_training import SemanticTraining
from reinforcement_learning.training.training_run import codes_in_use
from tests.agent_zoo.test_semantic_module import plain_pairwise_loss
from tests.command import assert_refuses
from tests.reinforcement_learning.training.test_data_parallel import played, settings_in
from tests.reinforcement_learning.training.test_resume import (  # noqa: F401
    UPDATES_BEFORE,
    StopAfter,
    again,
    equal,
    play,
    settings,
)

pytestmark = pytest.mark.usefixtures("without_curves")
CODES = 4
CHOSEN = SemanticSettings(codes=CODES, states=64, ticks_apart=10, return_reference=0.01)


@pytest.fixture(scope="module")
def small(maps: Path) -> Settings:
    return replace(settings_in(maps.parent), semantic=CHOSEN)


@pytest.fixture(scope="module")
def rollout_of(small: Settings, maps: Path):
    """A policy with a codebook, and what it played."""
    return played(small, maps)


def training(policy, chosen: SemanticSettings = CHOSEN, mean_return: float = 1.0) -> SemanticTraining:
    made = SemanticTraining(policy, chosen, 0, torch.Generator().manual_seed(0), ALONE)
    made.mean_return = mean_return
    return made


def life(total_reward: float) -> Life:
    return Life(1, 20, total_reward, True, None, "", 0.0, False, 1, 0, 0, {})


def test_spaced_states_of_an_agent_are_far_apart(rollout_of) -> None:
    rollout = rollout_of[1]
    assert int(rollout.spaced.sum()) == pytest.approx(len(rollout) / CHOSEN.ticks_apart, rel=0.2)
    ticks_of: dict[tuple[int, int], list[int]] = {}
    for tick in rollout.observation.tick.unique().tolist():
        (rows,) = (rollout.observation.tick == tick).nonzero(as_tuple=True)
        agents = rollout.observation.agent_id[rows]
        world = torch.cumsum(torch.cat([torch.zeros(1), (agents[1:] <= agents[:-1]).float()]), 0).long()
        for row, agent, place in zip(rows.tolist(), agents.tolist(), world.tolist(), strict=True):
            if rollout.spaced[row]:
                ticks_of.setdefault((place, agent), []).append(tick)
    assert {world for world, _ in ticks_of} == {0, 1} and max(map(len, ticks_of.values())) > 1
    assert all(b - a >= CHOSEN.ticks_apart for ticks in ticks_of.values() for a, b in itertools.pairwise(ticks))


def test_the_losses_are_those_of_the_minibatchs_states(rollout_of, small: Settings) -> None:
    policy, rollout = rollout_of
    minibatch = next(minibatches(rollout, replace(small.train, minibatch_rows=32), torch.Generator().manual_seed(3)))
    outputs = policy.forward_segments(
        rollout.observation.take(minibatch.rows), minibatch.lengths, rollout.state.take(minibatch.segments)
    )
    pairwise, quantisation = (loss(outputs, rollout, minibatch) for loss in training(policy).losses)
    spaced = rollout.spaced[minibatch.rows]
    features = outputs.hidden[spaced]
    assert 10 < len(features) < CHOSEN.states
    plain = plain_pairwise_loss(features.detach(), policy.semantic.plane(features).detach(), 20.0)
    assert pairwise.value.item() == pytest.approx(plain * len(features) / CHOSEN.states, rel=1e-4)
    quantised = quantisation_loss(policy.semantic.plane(outputs.hidden), policy.semantic.codebook)
    assert quantisation.value.item() == pytest.approx(quantised.item())
    assert (pairwise.weight, quantisation.weight) == (500.0, 1.0)
    (gradient,) = torch.autograd.grad(pairwise.value, outputs.hidden, retain_graph=True)
    assert torch.equal(gradient.abs().sum(1) > 0, spaced)
    (few, _) = (loss(outputs, rollout, minibatch) for loss in training(policy, replace(CHOSEN, states=16)).losses)
    (gradient,) = torch.autograd.grad(few.value, outputs.hidden)
    assert int((gradient.abs().sum(1) > 0).sum()) == 16 and spaced[gradient.abs().sum(1) > 0].all()


def test_the_weight_follows_the_return_between_0_and_1(rollout_of, small: Settings) -> None:
    policy = copy.deepcopy(rollout_of[0])
    made, optimizer = training(policy, replace(CHOSEN, return_reference=2.0), 0.0), make_optimizer(policy, small.train)
    weights = [made.weight]
    for returns in ([-3.0] * 500, [2.0] * 2000, [4.0] * 5000):
        made._latest.append(torch.randn(8, policy.policy.hidden_size))
        metrics = made.after_update([life(item) for item in returns], optimizer, 1)
        assert metrics["semantic/weight"] == weights[-1], "the weight of the update that was made"
        weights.append(made.weight)
    assert weights[:2] == [0, 0] and 0.5 < weights[2] < 1 and weights[3] == 1
    made._latest.append(torch.randn(8, policy.policy.hidden_size))
    before = made.state()
    made.after_update([], optimizer, 1)
    assert made.state() == before, "without a life that ended nothing changes"


@pytest.mark.parametrize("mean_return", [0.0, 1.0])
def test_dead_codes_restart_where_states_are_and_forget_their_moments(
    rollout_of, small: Settings, mean_return: float
) -> None:
    policy, rollout = copy.deepcopy(rollout_of[0]), rollout_of[1]
    optimizer, made = make_optimizer(policy, small.train), training(policy)
    update(policy, optimizer, rollout, small.train, torch.Generator(), lambda: None, ALONE, made.losses)
    plane = policy.semantic.plane(torch.cat(list(made._latest))).detach()
    used = int(policy.semantic.nearest(plane).mode().values)
    others = torch.arange(CODES) != used
    with torch.no_grad():
        policy.semantic.codebook[others] += 50
    moments = optimizer.state[policy.semantic.codebook]
    moments["exp_avg"][:] = moments["exp_avg_sq"][:] = 1
    made.mean_return = mean_return
    metrics = made.after_update([], optimizer, 3)
    assert metrics["semantic/perplexity"] == pytest.approx(1)
    if not mean_return:
        assert metrics["semantic/restarted_codes"] == 0 and (policy.semantic.codebook[others] > 40).all()
        return
    assert metrics["semantic/restarted_codes"] == CODES - 1
    for code in others.nonzero().squeeze(1):
        assert (plane == policy.semantic.codebook[code]).all(dim=1).any(), "a code should be put where a state is"
    for name in ("exp_avg", "exp_avg_sq"):
        assert moments[name][used].all() and not moments[name][others].any()


def test_the_codebook_learns_faster_and_other_policies_as_before(rollout_of, small: Settings) -> None:
    policy = rollout_of[0]
    optimizer = make_optimizer(policy, small.train)
    set_learning_rate(optimizer, 2e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [2e-4, 2e-4 * CODEBOOK_SPEED]
    assert [item for group in optimizer.param_groups for item in group["params"]][-1] is policy.semantic.codebook
    plain = copy.deepcopy(policy)
    plain.semantic = None
    (group,) = make_optimizer(plain, small.train).param_groups
    assert list(group["params"]) == list(plain.parameters()) and group["lr"] == small.train.learning_rate


@pytest.fixture(scope="module")
def semantic(settings: Settings) -> Settings:  # noqa: F811
    return replace(settings, semantic=replace(CHOSEN, ticks_apart=4, feed="embedding"))


@pytest.fixture(scope="module")
def straight(play, semantic: Settings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:  # noqa: F811
    return play(tmp_path_factory.mktemp("semantic"), StopAfter(-1), settings=semantic)


@pytest.fixture(scope="module")
def stopped(play, semantic: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("semantic_stopped")
    play(folder, StopAfter(UPDATES_BEFORE), settings=semantic)
    return folder


@pytest.mark.parametrize(
    ("same", "change"),
    [
        (True, lambda state: state),
        (False, lambda state: replace(state, semantic={"mean_return": torch.zeros((), dtype=torch.float64)})),
        (False, lambda state: replace(state, policy=state.policy | {"semantic.codebook": torch.zeros(CODES, 2)})),
    ],
    ids=["whole", "mean return", "codebook"],
)
def test_a_run_goes_on_bit_for_bit_and_needs_every_part(
    play, semantic, straight, again: tuple[Path, TrainingState], same: bool, change  # noqa: F811
) -> None:  # fmt: skip
    folder, state = again
    assert state.updates == UPDATES_BEFORE and state.semantic["mean_return"] > 0
    assert equal(play(folder, StopAfter(-1), change(state), semantic), straight) == same
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["semantic/weight"] == 0 and lines[2]["semantic/weight"] > 0
    assert all(np.isfinite(line["loss/semantic_pairwise"]) for line in lines)


def test_a_state_without_it_is_refused(play, semantic, again: tuple[Path, TrainingState]) -> None:  # noqa: F811
    folder, state = again
    without = replace(state, semantic={})
    assert_refuses("does not fit the settings of its run", play, folder, StopAfter(-1), without, semantic)


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({}, "no update was made"),
        ({"perplexity": 5.2, "weight": 0.4}, "5.2 of 8 in use"),
        ({"perplexity": 1.2, "weight": 0.4}, "1.2 of 8 in use (perplexity): the codebook has collapsed"),
        (
            {"perplexity": 1.0, "weight": 0.0, "mean_return": -0.3},
            "had no weight in the last update (mean return -0.30 is not above 0",
        ),
        (
            {"perplexity": 1.0, "weight": 0.0, "mean_return": 0.004},
            "had no weight in the last update (mean return was not above 0, is 0.004 now",
        ),
    ],
)
def test_collapse_is_told(metrics: dict[str, float], shown: str) -> None:
    assert shown in codes_in_use(8, {f"semantic/{name}": value for name, value in metrics.items()})
