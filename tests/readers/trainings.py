"""Policies, trainings, settings, curricula and evaluations with damage of every kind: what they tell, or one line."""

import functools
import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
import yaml
from hypothesis import strategies as st

from agent_zoo.checkpoint import load_checkpoint, read_info, save_checkpoint
from agent_zoo.memory import MemoryState
from analysis.evaluation.held_out_tasks import PREFIX, TASK_NAMES
from reinforcement_learning.game.environment import EpisodeStart
from reinforcement_learning.game.tasks import read_tasks
from reinforcement_learning.play.contest import Contest
from reinforcement_learning.play.entrants import Entrant
from reinforcement_learning.play.evaluation_results import SeedResults
from reinforcement_learning.run_settings import load_settings, read_run_settings
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.run_folder import TrainingState
from tests.conftest import AGENT
from tests.fuzz import RAW_VALUES, VALUES, Bench, damaged_json, damaged_tensors, junk, read_or_refuse, reader, resigned
from tests.reinforcement_learning.play.test_evaluation_journal import episode
from tests.tiny_policies import tiny_entrant

CONFIG = Path(__file__).parents[2] / "config.yaml"
TASKS = """
- {predicate: CountEvent, arguments: {event: EAT_FOOD, N: 10}, weight: 2}
- {predicate: AttainSkill, arguments: {skill: Fishing, level: 4, num_agent: 1}}
- {predicate: TickGE, arguments: {num_tick: 100}}
"""


def state() -> TrainingState:
    random = np.random.default_rng(0)
    return TrainingState(
        steps=384,
        updates=3,
        policy={"critic.weight": torch.from_numpy(random.normal(size=(1, 4)).astype(np.float32))},
        optimizer={"0/exp_avg": torch.ones(1, 4), "0/step": torch.tensor(3.0)},
        memory=MemoryState(torch.ones(1, 6, 4), torch.zeros(1, 6, 4)),
        minibatch_random=torch.arange(16, dtype=torch.uint8).reshape(1, 16),
        worlds=[EpisodeStart(7, 2, random.integers(5, size=(3, 2, 4)).astype(np.int16), np.ones(5)), EpisodeStart(8)],
        curriculum={"reached": np.arange(5.0)},
        semantic={"mean_return": torch.tensor(0.5, dtype=torch.float64)},
    )


@reader("reinforcement_learning.training.run_folder:load", cases=150)
def training_states(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "training_state.safetensors"
    state().save(path)
    truth = damaged_tensors(data, path, "training state")
    result = read_or_refuse(lambda: TrainingState.load(path), path)
    if result is None:
        return
    assert truth is not None, "a file whose hash does not fit was read"
    arrays, output = truth[0], orjson.loads(truth[1])
    assert (result.steps, result.updates) == (output["steps"], output["updates"])
    assert [{"first_seed": w.first_seed, "number": w.number} for w in result.worlds] == output["worlds"]
    assert np.array_equal(result.memory.hidden.numpy(), arrays["memory/hidden"], equal_nan=True)
    assert {f"policy/{name}" for name in result.policy} == {name for name in arrays if name.startswith("policy/")}
    for place, world in enumerate(result.worlds):
        assert np.array_equal(world.actions.ravel(), arrays.get(f"actions/{place}", np.zeros(0)).ravel())


_BILLION_LAUGHS = ["a: &a [x, x, x, x, x, x, x, x, x]"] + [
    f"{name}: &{name} [{', '.join(9 * [f'*{before}'])}]" for before, name in pairwise("abcdefghi")
]
_TAGS = (
    "!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!binary x", "!!timestamp x", "!!set {a}",
    "!!int ''", "!!float x", "!<tag:yaml.org,2002:int> x", "2001-99-99",
)  # fmt: skip
_ALIASES = ("&a [*a]", "&a {x: *a}", "*nowhere", "{<<: 3}", "{" + ", ".join(_BILLION_LAUGHS) + "}")
_KEYS = ("{[1, 2]: 3}", "{? {a: 1} : 2}", "? [a]: b")
_SYNTAX = ("|\n  a\n b", "'", '"\\ud800"', '"\\x00"', "\t- a", "%YAML 9.9", "--- a\n--- b")
_NUMBERS = ("1" * 10_000, "0b" + "1" * 9000, "1:" * 3000 + "1", "1e" + "9" * 300, ".inf", ".nan")
_NESTED = ("[" * 5000, "{a: " * 3000, "[" * 20_000 + "]" * 20_000, "- " * 3000)
RAW_YAML = st.one_of(
    st.sampled_from([*_TAGS, *_ALIASES, *_KEYS, *_SYNTAX, *_NUMBERS, *_NESTED]),
    RAW_VALUES.filter(lambda text: len(text) < 1 << 16),
    VALUES.map(lambda value: yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n")),
)
"""Texts in place of a value in YAML, most of which nobody would write."""


def damaged_yaml(data: st.DataObject, content: bytes) -> bytes:
    if data.draw(st.integers(0, 2), label="bytes") == 0:
        return junk(data, content)
    lines = content.decode().split("\n")
    places = [place for place, line in enumerate(lines) if ":" in line and not line.lstrip().startswith("#")]
    place = data.draw(st.sampled_from(places), label="line")
    before = lines[place][: lines[place].index(":") + 1]
    lines[place] = data.draw(st.sampled_from([f"{before} ", "", before]), label="before") + data.draw(RAW_YAML)
    return "\n".join(lines).encode(errors="surrogatepass")


@reader("reinforcement_learning.run_settings:load_settings", cases=150)
def settings_files(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "config.yaml"
    path.write_bytes(damaged_yaml(data, CONFIG.read_bytes()))
    result = read_or_refuse(lambda: load_settings(path, AGENT), path)
    assert result is None or isinstance(result, Settings)


@reader("reinforcement_learning.game.tasks:read_tasks", cases=100)
def curricula(bench: Bench, folder: Path, data: st.DataObject) -> None:
    path = folder / "mine.yaml"
    path.write_bytes(damaged_yaml(data, TASKS.encode()))
    result = read_or_refuse(lambda: read_tasks(path), path)
    assert result is None or all(spec.sampling_weight > 0 for spec in result)


@reader(
    "reinforcement_learning.run_settings:read_run_settings",
    "reinforcement_learning.run_settings:stated_in_run",
    cases=120,
)
def settings_of_runs(bench: Bench, folder: Path, data: st.DataObject) -> None:
    content = {"agent": AGENT, "settings": orjson.loads(orjson.dumps(asdict(Settings()), default=str)), "versions": {}}
    (folder / "settings.json").write_bytes(damaged_json(data, content))
    result = read_or_refuse(lambda: read_run_settings(folder), folder)
    if result is not None:
        output = orjson.loads((folder / "settings.json").read_bytes())
        assert result[0] == output["agent"] and isinstance(result[1], Settings)


EPISODES = 6
TASKS_PLAYED = [name.removeprefix(PREFIX) for name in TASK_NAMES[:6]]


@functools.cache
def contest(bench: Bench) -> Contest:
    """An evaluation of two policies."""
    world = bench["small_world"], bench["task"], bench["maps"]
    entrant = tiny_entrant(*world, "takeru", seed=1, hidden_size=8)
    return Contest((entrant, replace(entrant, name="other")), *world, torch.device("cpu"))


def evaluation(bench: Bench, folder: Path) -> SeedResults:
    """What it has left in a folder."""
    return SeedResults(folder / "eval_pvp_1.json", contest(bench), "pvp", 1, EPISODES)


def play(results: SeedResults, groups: int = EPISODES) -> None:
    for group in results.missing[:groups]:
        results.add([episode(number, TASKS_PLAYED) for number in group.numbers])


def lists_in(folder: Path) -> dict[str, dict[str, Any]]:
    content = orjson.loads((folder / "eval_pvp_1.json").read_bytes())
    return {
        name: {key: item[key] for key in item.keys() - {"provenance", "checksum"}} for name, item in content.items()
    }


@functools.cache
def whole(bench: Bench) -> Path:
    """A folder with all results."""
    folder = bench.folder()
    play(evaluation(bench, folder))
    return folder


@reader("reinforcement_learning.play.evaluation_results:_read", cases=100)
def journals_of_evaluations(bench: Bench, folder: Path, data: st.DataObject) -> None:
    play(evaluation(bench, folder), groups=1)
    (journal,) = folder.iterdir()
    kind = data.draw(st.sampled_from(["bytes", "line", "signed line"]), label="what")
    if kind == "bytes":
        journal.write_bytes(junk(data, journal.read_bytes()))
    else:
        lines = journal.read_bytes().splitlines()
        place = data.draw(st.integers(0, len(lines) - 1), label="line")
        line = damaged_json(data, orjson.loads(lines[place]))
        lines[place] = resigned(line) if kind == "signed line" else line
        journal.write_bytes(b"".join(line + b"\n" for line in lines))
    results = read_or_refuse(lambda: evaluation(bench, folder), folder)
    if results is None:
        return
    read_or_refuse(lambda: play(results), folder)
    if kind != "signed line":
        assert lists_in(folder) == lists_in(whole(bench))


@reader("reinforcement_learning.play.evaluation_results:_read_results", cases=100)
def results_of_evaluations(bench: Bench, folder: Path, data: st.DataObject) -> None:
    content = (whole(bench) / "eval_pvp_1.json").read_bytes()
    damage = data.draw(st.sampled_from([junk, lambda data, content: damaged_json(data, orjson.loads(content))]))
    (folder / "eval_pvp_1.json").write_bytes(damage(data, content))
    results = read_or_refuse(lambda: evaluation(bench, folder), folder)
    if results is not None and results.were_there:
        summaries = read_or_refuse(results.summaries, folder)
        assert summaries in (None, evaluation(bench, whole(bench)).summaries())


@functools.cache
def subject(bench: Bench, agent: str) -> Entrant:
    return tiny_entrant(bench["small_world"], bench["task"], bench["maps"], agent, seed=1, hidden_size=8)


@reader("agent_zoo.checkpoint:read_info", "agent_zoo.checkpoint:load_checkpoint", cases=100)
def checkpoints(bench: Bench, folder: Path, data: st.DataObject) -> None:
    entrant = subject(bench, data.draw(st.sampled_from(["takeru", "yaofeng"]), label="agent"))
    path = folder / "policy.safetensors"
    save_checkpoint(path, entrant.policy, replace(entrant.info, steps=123))
    truth = damaged_tensors(data, path, "policy")
    info = read_or_refuse(lambda: read_info(path), path)
    loaded = read_or_refuse(lambda: load_checkpoint(path), path)
    if loaded is None:
        return
    assert truth is not None, "a file whose hash does not fit was read"
    arrays, text = truth
    assert loaded[1] == info
    result = json.loads(loaded[1].to_header())
    assert result == {"reward": {}} | orjson.loads(text)
    weights = loaded[0].state_dict()
    assert weights.keys() == arrays.keys()
    assert all(np.array_equal(weights[name].numpy(), arrays[name], equal_nan=True) for name in arrays)
