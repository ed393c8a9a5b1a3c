"""Do other trainings find the same codes? On real lives, with trainings whose agreement is known."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch

from activation_store.reader import read_dump, read_metadata
from activation_store.recording import SEEN_FIELDS
from activation_store.schema import DumpMetadata
from agent_zoo.capture import ALL_LAYERS
from agent_zoo.checkpoint import save_checkpoint
from analysis.codes.agreement import (
    CODES,
    EVERY,
    GAUSSIAN,
    TRAINED,
    UNTRAINED,
    Pair,
    agreement_of,
    agreement_table,
    draw_lives,
    load_networks,
    replay,
)
from common.files import sha256
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import Entrant, load_entrant, untrained_entrant
from reinforcement_learning.play.extraction import RecordingPlan, extract
from reinforcement_learning.play.workers import Workers
from reinforcement_learning.settings import EnvironmentSettings, PolicySettings, SemanticSettings, Settings
from tests.command import assert_refused, assert_refuses, run_here
from tests.conftest import AGENT

pytestmark = pytest.mark.slow

CODES_EACH = 5


@dataclass(frozen=True)
class Trainings:
    """A dump of the policy `own`, and a folder with it and others."""

    dump: Path
    policies: Path

    @cached_property
    def metadata(self) -> DumpMetadata:
        return read_metadata(self.dump)


@pytest.fixture(scope="module")
def trainings(small_world, task, maps, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    """`own` and `renumbered` differ in the order of their codes; `other` in its weights; the rest cannot take part."""
    folder = tmp_path_factory.mktemp("trainings")
    policies = folder / "policies"
    policies.mkdir()
    world = replace(small_world, spawn_immunity=0)

    def made(seed: int, env: EnvironmentSettings = world, agent: str = AGENT, codes: int = CODES_EACH) -> Entrant:
        policy, semantic = PolicySettings(hidden_size=16), SemanticSettings(codes=codes)
        settings = Settings(env=env, task=task, policy=policy, semantic=semantic)
        return untrained_entrant(agent, settings, maps, seed)

    own, other = made(0), made(1)
    for case in (own, other):  # five codes where the states of a first recording are
        save_checkpoint(policies / "own.safetensors", case.policy, case.info)
        contest = Contest((load_entrant(policies / "own.safetensors"),), world, task, maps, torch.device("cpu"))
        plan = RecordingPlan(1, None, 3, ("semantic_plane",), format="parquet")
        first = folder / f"first_{case is own}"
        extract(contest, plan, [first], Workers(1), lambda *_: None)
        places = np.quantile(read_dump(first).activations["semantic_plane"], np.linspace(0.1, 0.9, CODES_EACH), axis=0)
        with torch.no_grad():
            case.policy.semantic.codebook.copy_(torch.from_numpy(places))
    save_checkpoint(policies / "other.safetensors", other.policy, other.info)
    save_checkpoint(policies / "own.safetensors", own.policy, own.info)
    with torch.no_grad():
        own.policy.semantic.codebook.copy_(own.policy.semantic.codebook[[3, 0, 4, 1, 2]])
    save_checkpoint(policies / "renumbered.safetensors", own.policy, own.info)
    masked = made(0, replace(world, mask_intrinsics="own"))
    for name, case in (("plain", made(0, codes=0)), ("masked", masked), ("yao", made(0, agent="yaofeng"))):
        save_checkpoint(policies / f"{name}.safetensors", case.policy, case.info)

    contest = Contest((load_entrant(policies / "own.safetensors"),), world, task, maps, torch.device("cpu"))
    plan = RecordingPlan(6, None, 4, ALL_LAYERS, SEEN_FIELDS, format="parquet")
    extract(contest, plan, [folder / "own"], Workers(1), lambda *_: None)
    return Trainings(folder / "own", policies)


def test_the_recorded_policy_sees_its_own_lives_as_it_did(trainings: Trainings) -> None:
    networks = load_networks(trainings.dump, trainings.metadata, ["own", "other"], trainings.policies)
    drawn, subsample = draw_lives(trainings.dump, 150, seed=3)
    (recorded, again, other), lives = replay(trainings.dump, trainings.metadata, drawn, subsample, networks)
    assert len(recorded.code) == len(lives.index) <= 150 and len(lives) == len(drawn) < 96
    np.testing.assert_allclose(again.hidden, recorded.hidden, atol=1e-5)
    assert np.array_equal(again.code, recorded.code) and len(np.unique(recorded.code)) >= 4
    assert not np.array_equal(other.code, recorded.code)
    every = read_dump(trainings.dump, subsample=subsample, lives=drawn.tolist(), layers=["semantic_code"])
    counted = np.bincount(every.activations["semantic_code"].argmax(axis=1), minlength=CODES_EACH)
    assert np.array_equal(counted, np.bincount(recorded.code, minlength=CODES_EACH))
    assert subsample.every == EVERY


@pytest.fixture(scope="module")
def result(trainings: Trainings) -> list[Pair]:
    dump, metadata = trainings.dump, trainings.metadata
    networks = load_networks(dump, metadata, ["own", "renumbered", "other"], trainings.policies)
    return agreement_of(dump, metadata, networks, 5000, 100, 3, lambda _: nullcontext(lambda _: None))[0]


def of(result: list[Pair], *names: str, way: str = CODES, networks: str = TRAINED) -> Pair:
    """The pair of two networks; the first `own` is the recorded one."""
    chosen = [pair for pair in result if pair.way == way and pair.networks == networks]
    return next(pair for pair in chosen if not names or (pair.first, pair.second) == names)


def test_a_policy_agrees_with_itself_in_any_order_of_its_codes_and_not_with_other_weights(result: list[Pair]) -> None:
    for name in ("own", "renumbered"):
        pair = of(result, "own", name)
        assert pair.adjusted_rand.value == pytest.approx(1) and pair.normalised_information.value == pytest.approx(1)
        assert pair.adjusted_rand.low == pytest.approx(1) and pair.in_use[0] == pytest.approx(pair.in_use[1])
    pair = of(result, "own", "other")
    assert -0.2 < pair.adjusted_rand.low < pair.adjusted_rand.value < pair.adjusted_rand.high < 0.9
    assert 0 < pair.normalised_information.value < 0.9 and all(1 < used <= CODES_EACH for used in pair.in_use)


def test_controls_are_of_every_pair_of_gaussians_and_of_two_untrained_networks(result: list[Pair]) -> None:
    ways = {pair.way for pair in result}
    assert len(ways) == 3 and len(result) == 3 * (6 + 1) + 2 * 6
    for way in ways - {CODES}:
        assert of(result, "own", "own", way=way).adjusted_rand.value > 0.95  # the same states, to rounding
        twins = of(result, "own", "own", way=way, networks=GAUSSIAN)
        assert twins.adjusted_rand.value > 0.95  # two networks with the same states have the same Gaussian
        alike = of(result, "own", "other", way=way, networks=GAUSSIAN)
        assert alike.adjusted_rand.value < 0.95 and alike != of(result, "own", "other", way=way)
        fresh = of(result, way=way, networks=UNTRAINED)
        assert fresh.first != fresh.second and fresh.adjusted_rand.value < 0.95
    lines = agreement_table(result).splitlines()
    assert len(lines) == 1 + 2 * len(result) and all(line.count("\t") == lines[0].count("\t") for line in lines)


def test_the_command_writes_what_it_prints(trainings: Trainings, tmp_path: Path) -> None:
    where = ("semantic_clusters.py", "agreement", trainings.dump, "--policies-dir", trainings.policies)
    done = run_here(*where, "--policies", "other", "--bootstraps", 100, "-o", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    output = json.loads((tmp_path / "results" / "agreement.json").read_text())
    assert [item["way"] for item in output["pairs"]].count(CODES) == 2 and output["one_in"] == EVERY
    assert output["policies"] == {"other": sha256(trainings.policies / "other.safetensors")}
    value = output["pairs"][0]["adjusted_rand"]["value"]
    assert f"{value:.2f} (" in done.stdout and f"{output['states']:,} states" in done.stdout
    assert (tmp_path / "results" / "agreement.tsv").read_text().startswith("way\tnetworks\tfirst\tsecond\tmeasure")


def test_bad_input_is_refused_in_one_line(trainings: Trainings, tmp_path: Path) -> None:
    cases: tuple[tuple[tuple[object, ...], tuple[str, ...]], ...] = (
        ((), ("--policies", "other trainings")),
        (("--policies", "plain"), ("plain has no codes", "--semantic.codes")),
        (("--policies", "masked"), ("masked cannot see", "mask_intrinsics is own, not off")),
        (("--policies", "yao"), ("yao cannot see", "agent is yaofeng, not neurips23_start_kit")),
        (("--policies", "othr"), ("no policy 'othr'", "did you mean other")),
        (("--policies", "other", "--states", 10), ("--states is 10", "200 to 100000")),
        (("--policies", "other", "--bootstraps", 10), ("--bootstraps is 10",)),
    )
    where = ("semantic_clusters.py", "agreement", trainings.dump, "--policies-dir", trainings.policies)
    for options, parts in cases:
        assert_refused(run_here(*where, *options, "-o", tmp_path / "results"), *parts)
    assert not (tmp_path / "results").exists()
    assert_refuses("too few states", draw_lives, trainings.dump, 50, seed=0)


def test_a_dump_that_lacks_something_is_refused(trainings: Trainings, small_world, task, maps, tmp_path: Path) -> None:
    entrant = load_entrant(trainings.policies / "own.safetensors")
    contest = Contest((entrant,), small_world, task, maps, torch.device("cpu"))
    for place, (layers, fields, message) in enumerate((
        (("lstm_hidden",), SEEN_FIELDS, "holds no layer semantic_code"),
        (("semantic_code",), SEEN_FIELDS, "holds no layer lstm_hidden"),
        (("lstm_hidden", "semantic_code"), ("Market", "Task"), "recorded without ActionTargets"),
    )):  # fmt: skip
        dump = tmp_path / str(place)
        plan = RecordingPlan(1, 2, 4, layers, fields, format="parquet")
        extract(contest, plan, [dump], Workers(1), lambda *_: None)
        assert_refuses(message, load_networks, dump, read_metadata(dump), ["other"], trainings.policies)
