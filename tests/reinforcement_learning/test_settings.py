"""Settings: valid content of config.yaml, and errors that name the key, the value and the allowed values."""

import json
import sys
from pathlib import Path

import pytest

from reinforcement_learning.run_settings import check_training, load_settings, read_run_settings
from reinforcement_learning.settings import RewardSettings, Settings, TrainSettings, plain_settings
from tests.command import assert_refuses
from tests.conftest import AGENT

SHIPPED = Path(__file__).parents[2] / "config.yaml"


def load(tmp_path: Path, text: str, agent: str = "anyone", debug: bool = False) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_settings(path, agent, debug)


@pytest.mark.parametrize("debug", [False, True])
def test_the_shipped_file_is_valid(debug: bool) -> None:
    check_training(load_settings(SHIPPED, "neurips23_start_kit", debug))


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    train = load(tmp_path, "train: {learning_rate: 1e-4, total_agent_steps: 3_000_000, batch_size: 3e4}").train
    assert (train.learning_rate, train.total_agent_steps, train.batch_size) == (0.0001, 3_000_000, 30_000)
    assert type(train.batch_size) is int
    assert load(tmp_path, "train: {pool_kernel: [0, 1]}").train.seats == (0, 1)


def test_precedence_file_agent_debug(tmp_path: Path) -> None:
    text = """
    train: {gamma: 0.5, learning_rate: 1e-3, seed: 7}
    agents: {mine: {train: {gamma: 0.6, learning_rate: 2e-3}}}
    debug: {train: {gamma: 0.7}}
    """
    plain, mine, debug = (load(tmp_path, text, *choice).train for choice in (("x",), ("mine",), ("mine", True)))
    assert (plain.gamma, mine.gamma, debug.gamma) == (0.5, 0.6, 0.7)
    assert (plain.learning_rate, mine.learning_rate, debug.learning_rate) == (1e-3, 2e-3, 2e-3)
    assert (plain.seed, mine.seed, debug.seed) == (7, 7, 7)
    assert plain.clip_coefficient == TrainSettings().clip_coefficient


def test_rewards_of_a_header_and_of_a_run_that_are_older_than_the_published_ones(tmp_path: Path) -> None:
    older = {"task_coef": 1, "bonus_coef": 1, "hp_coef": 0, "drive_coef": 0}
    assert RewardSettings.of_header(older) == RewardSettings.of_header({}) == RewardSettings(as_published=False)
    chosen = RewardSettings(gold=0.5, disable_give=False)
    assert chosen.to_header() == older | {"gold": 0.5, "disable_give": False, "as_published": True}
    assert RewardSettings.of_header(chosen.to_header()) == chosen
    for reward, as_published in ((older, False), (chosen.to_header(), True)):
        (tmp_path / "settings.json").write_text(json.dumps({"agent": "takeru", "settings": {"reward": reward}}))
        assert read_run_settings(tmp_path)[1].reward.as_published is as_published


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train: {gamma: 2}", ("train.gamma", "2", "less than or equal to 1")),
        ("train: {learning_rate: -1e-4}", ("train.learning_rate", "-1e-4", "greater than 0")),
        ("train: {learning_rate: .nan}", ("train.learning_rate", "nan")),
        ("train: {batch_sise: 3}", ("unknown setting train.batch_sise", "batch_size")),
        ("trian: {}", ("unknown setting trian", "train")),
        ("env: {num_agents: many}", ("env.num_agents", "'many'")),
        ("env: {num_agents: true}", ("env.num_agents", "True", "number")),
        ("env: {num_agents: 3.5}", ("env.num_agents", "3.5", "integer")),
        ("env: {map_size: 33}", ("env.map_size", "33", "multiple of 8")),
        ("rollout: {vectorization: quantum}", ("rollout.vectorization", "quantum", "serial")),
        ("env: 3", ("env", "3", "key: value")),
        ("reward: {heal: -1}", ("reward.heal", "-1", "greater than or equal to 0")),
        *((f"env: {{food_regrowth: {rate}}}", ("env.food_regrowth",)) for rate in (-1, 41, ".nan")),
        *((f"env: {{water: {share}}}", ("env.water",)) for share in (-0.1, 0.71, ".nan")),
        *((f"env: {{view_radius: {radius}}}", ("env.view_radius = ",)) for radius in (0, -1, 8, 2.5, "far", "true")),
        *(
            (f"policy: {{cell: '{cell}'}}", ("policy.cell = ", "'lstm', 'gru' or 'ema'"))
            for cell in ("rnn", "LSTM", "")
        ),
        *(
            (f"train: {{pool_kernel: '{kernel}'}}", ("train.pool_kernel = ", "0 for the learner"))
            for kernel in ("1,2", "0,x", "", "0,-1")
        ),
        ("semantic: {codes: 1}", ("semantic.codes = 1: must be 2 to 512, or 0",)),
        ("semantic: {codes: 513}", ("must be 2 to 512",)),
        ("semantic: {plane_dimensions: 1}", ("plane_dimensions = 1", "greater than or equal to 2")),
        ("semantic: {plane_dimensions: 4}", ("less than or equal to 3",)),
        ("semantic: {feed: letters}", ("'number' or 'embedding'",)),
        ("semantic: {return_reference: 0}", ("greater than 0",)),
        ("agents: {anyone: {train: {gamma: 2}}}", ("train.gamma", "2")),
        ("a: [", ("cannot be read as YAML",)),
    ],
)
def test_refused_naming_key_value_and_what_is_allowed(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    assert_refuses((*parts, "config.yaml"), load, tmp_path, text)


@pytest.mark.parametrize(("message", "network"), [({}, "earlier"), ({"network": "published"}, "published")])
def test_a_run_that_says_no_network_goes_on_with_the_earlier_one(
    tmp_path: Path, message: dict[str, str], network: str
) -> None:
    content = plain_settings(Settings())
    content["policy"] = {key: value for key, value in content["policy"].items() if key != "network"} | message
    (tmp_path / "settings.json").write_text(json.dumps({"agent": AGENT, "settings": content}))
    assert read_run_settings(tmp_path)[1].policy.network == network


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train: {batch_size: 1000, minibatch_rows: 128, bptt_horizon: 8}", ("1000", "128 x 8 = 1024")),
        ("train: {total_agent_steps: 100}", ("100", "32768")),
        ("env: {num_agents: 8, early_stop_agents: 8}", ("early_stop_agents 8", "num_agents 8")),
        ("rollout: {num_envs: 5, num_workers: 2}", ("num_envs 5", "num_workers 2")),
        ("rollout: {num_envs: 6, num_workers: 3}", ("num_workers 3 must be even or 0", "num_envs 6")),
        ("policy: {cell: gru, lstm_layers: 0}", ("policy.cell gru", "lstm_layers is 0")),
        ("train: {pool_kernel: '0,1', processes: 2}", ("one process",)),
        (f"train: {{pool_kernel: {[0] * 200}}}", ("more seats",)),
        ("env: {horizon: 12, interrupt: 12}", ("env.interrupt 12", "env.horizon 12")),
        (
            "env: {task_shown_for: 8}\ntask: {syllabus: prioritized_level_replay}",
            ("--syllabus prioritized_level_replay", "--task.shown-for"),
        ),
    ],
)
def test_impossible_combinations_name_both_numbers(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    settings = load(tmp_path, text)
    assert_refuses(parts, check_training, settings)


def test_a_curriculum_without_its_library_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(tmp_path, "task: {syllabus: learning_progress}")
    check_training(settings)
    monkeypatch.setitem(sys.modules, "syllabus", None)  # type: ignore[arg-type]  # as if it were not installed
    assert_refuses("make setup-all", check_training, settings)
    check_training(load(tmp_path, ""))
