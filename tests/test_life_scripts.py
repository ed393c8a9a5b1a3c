"""Both life scripts from the command line, on a real recording and a run with planted clusters."""

from pathlib import Path

import numpy as np
import orjson
import pytest

from activation_store.reader import read_dump, read_identity
from activation_store.schema import LIFE_KEY
from activation_store.selection import Subsample
from analysis.life.selection import choose, life_spans
from tests.command import assert_refused, run, run_here, run_well
from tests.planted import Planted, planted_dump, write_planted
from tests.planted_run import planted_run
from tests.recorded import Recording

LIFE, PHASES = "agent_life_visualization.py", "cluster_life_phase.py"
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def clusters(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every third record."""
    return planted_run(recording.dump, tmp_path_factory.mktemp("analysis_results"), 3)


def test_the_life_at_the_75th_percentile_is_drawn(recording: Recording, tmp_path: Path) -> None:
    done = run_here("agent_life_visualization.py", recording.dump, "--output", tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name == "dump-p75" and str(folder) in done.stdout.replace("\n", "")
    (life,) = orjson.loads((folder / "lives.json").read_bytes())
    identity = read_identity(recording.dump)
    lengths = np.sort(np.unique(np.stack([identity["episode"], identity["agent_id"]]), axis=1, return_counts=True)[1])
    assert (lengths >= life["records"]).mean() >= 0.25 and (lengths <= life["records"]).mean() >= 0.75
    assert (folder / life["figure"]).read_bytes().startswith(PNG)
    assert {path.name for path in folder.iterdir()} == {life["figure"], "lives.json", "run.json", "DONE.json"}


@pytest.mark.slow
def test_lives_of_the_longer_half_with_their_clusters(recording: Recording, clusters: Path, tmp_path: Path) -> None:
    """Options with underscores, as in the original tools."""
    done = run(
        "agent_life_visualization.py", recording.dump, "--num_agents", 3, "--cluster_dir", clusters, "--seed", 7,
        "--output", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "of lives that had no vote" in done.stdout.replace("\n", " ")
    (folder,) = tmp_path.iterdir()
    lives = orjson.loads((folder / "lives.json").read_bytes())
    _, ticks = life_spans(read_identity(recording.dump))
    middle = ticks[len(ticks) // 2]
    assert len({(life["agent_id"], life["episode"]) for life in lives}) == 3
    for life in lives:
        assert life["records"] >= middle and (folder / life["figure"]).read_bytes().startswith(PNG)
        key = np.array([[life[name] for name in LIFE_KEY]])
        (first,) = Subsample(3, skip_first=1, seed=42).first_kept(key)
        assert life["labelled_by_the_run"] == len(range(first, life["records"], 3))
        assert sum(life["cluster_shares"].values()) == pytest.approx(1)
    with np.load(folder / "propagated_labels.npz", allow_pickle=False) as propagated:
        assert len(propagated["label"]) == sum(life["records"] for life in lives)


def test_phases_of_a_real_run(recording: Recording, clusters: Path, tmp_path: Path) -> None:
    done = run_here(
        "cluster_life_phase.py", recording.dump, "--cluster-dir", clusters, "--n-bins", 5, "--min-lifespan", 20,
        "--permutations", 99, "--bootstraps", 100, "--output", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name == f"{clusters.name}-life_phase-b5-l20-p99-r100"
    for name in ("life_phase.png", "life_tick.png", "transitions.png"):
        assert (folder / name).read_bytes().startswith(PNG)
    output = orjson.loads((folder / "life_phase.json").read_bytes())
    _, ticks = life_spans(read_identity(recording.dump))
    assert output["lives"] == (ticks >= 20).sum() and output["lives_in_dump"] == len(ticks)
    np.testing.assert_allclose(np.sum(output["by_phase"]["shares"]["mean"], axis=1), 1)
    assert sum(output["dwelling_ticks"]["ticks"]) == output["records"] == ticks[ticks >= 20].sum()
    text = (folder / "life_phase.txt").read_text()
    assert text.strip() in done.stdout and "nan" not in text
    assert f"{output['by_phase']['association']['explained']:.1%}" in text


def test_lives_that_are_not_there_or_not_long_enough_are_refused(
    recording: Recording, tmp_path: Path, clusters: Path
) -> None:
    done = run_here("agent_life_visualization.py", recording.dump, "--agent", 999, "--episode", 1, "--output", tmp_path)
    assert_refused(done, str(recording.dump), "no life of agent 999 in episode 1", "agents (1 to 16)")
    assert list(tmp_path.iterdir()) == []
    longest = life_spans(read_identity(recording.dump))[1][-1]
    wanted = ("--cluster-dir", clusters, "--min-lifespan", longest + 1, "--output", tmp_path / "out")
    assert_refused(run_here(PHASES, recording.dump, *wanted), f"the longest of 32 lasts {longest}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (LIFE, ["--num-agents", 0], "--num-agents is 0: must be 1 or more"),
        (LIFE, ["--agent", 0], "--agent is 0"),
        (LIFE, ["--episode", -1], "--episode is -1"),
        (LIFE, ["--seed", -1], "--seed is -1"),
        (LIFE, ["--cluster-dir", "nowhere"], "nowhere does not exist"),
        (PHASES, ["--cluster-dir", "nowhere"], "nowhere does not exist"),
        (PHASES, ["--cluster-dir", "x", "--n-bins", 1], "--n-bins is 1: must be 2 to 1000"),
        (PHASES, ["--cluster-dir", "x", "--min-lifespan", 0], "--min-lifespan is 0"),
        (PHASES, ["--cluster-dir", "x", "--permutations", 1], "--permutations is 1: must be 19 or more"),
        (PHASES, ["--cluster-dir", "x", "--bootstraps", 1], "--bootstraps is 1"),
    ],
)
def test_values_that_cannot_work_are_refused(
    script: str, arguments: list[object], message: str, recording: Recording, tmp_path: Path
) -> None:
    assert_refused(run_here(script, recording.dump, *arguments, "--output", tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("script", [LIFE, PHASES])
def test_clusters_of_another_dump_are_refused_naming_both(
    script: str, recording: Recording, clusters: Path, tmp_path: Path
) -> None:
    other = write_planted(tmp_path / "other", planted_dump())
    refused = run_here(script, other, "--cluster-dir", clusters, "--output", tmp_path / "out")
    assert_refused(refused, str(other), str(recording.dump), "another dump")
    assert not (tmp_path / "out").exists()


def test_a_dump_of_a_single_record_is_drawn(tmp_path: Path) -> None:
    planted = planted_dump(agents=1, episodes=1, ticks=2)
    first = Planted(planted.records.take(np.arange(1)), planted.metadata, planted.behaviour[:1])
    one = write_planted(tmp_path / "one", first)
    run_well(LIFE, one, "--num-agents", 3, "--output", tmp_path / "out")
    (life,) = orjson.loads((tmp_path / "out" / "one-n3-seed42" / "lives.json").read_bytes())
    assert life["records"] == 1 and life["ending"] == "alive when the recording ends"


def test_the_draw_is_seeded_without_repeats_and_from_the_longer_half(recording: Recording) -> None:
    lives, ticks = life_spans(read_identity(recording.dump))
    places = np.arange(len(lives))
    draws = [choose(places, 5, seed) for seed in (1, 1, 2)]
    assert (draws[0] == draws[1]).all() and (draws[0] != draws[2]).any()
    assert all(len(set(draw.tolist())) == 5 and draw.min() >= len(lives) // 2 for draw in draws)
    assert len(choose(lives, 1000, 0)) == len(lives) - len(lives) // 2
    for key, lasted in zip(lives[[0, -1]].tolist(), ticks[[0, -1]].tolist(), strict=True):
        assert len(read_dump(recording.dump, layers=[], lives=[key])) == lasted
