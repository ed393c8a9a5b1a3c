"""Readers of small files, most of them left by runs that were interrupted: what they tell, or one line."""

import functools
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import torch
from hypothesis import strategies as st

from activation_store.exchange.export import convert
from activation_store.interventions import LivesTable, read_lives, write_lives
from activation_store.reader import read_metadata
from activation_store.sparse_dictionary import read_dictionary, write_dictionary
from activation_store.writer import Journal, read_journal
from agent_zoo.original.curriculum import read_curriculum
from agent_zoo.original.file import read_original
from analysis.interventions.effects.pairs import read_run_file
from analysis.interventions.play.intervention_run import ArmGroup, PlayedArms, _claim
from analysis.runs.codebook_rule import read_names
from analysis.runs.run_folder import Parts
from analysis.sparse.fitting import _read_curve, claim
from analysis.sparse.training import Epoch, FitPlan, Training, normalisation
from analysis.training_runs.held_out import _checkpoint_hashes
from analysis.training_runs.run import read_run
from analysis.world_model import training as world_training
from analysis.world_model.model import WorldModel, load_model, save_model
from common.array_files import write_tensors
from common.checked_json import with_checksum
from common.files import read_json_lines
from reinforcement_learning.game.maps import _looks_like_a_map
from reinforcement_learning.game.task_encoder import _read_cache, file_embeddings, write_embeddings
from reinforcement_learning.game.tasks import TaskSpec, curriculum, read_weights, save_weights
from reinforcement_learning.settings import Settings, TaskSettings
from reinforcement_learning.training.curves import read_curves
from reinforcement_learning.training.local_sweep import SweepFolder, Trial, _read_trials
from reinforcement_learning.training.opponents import Ratings
from reinforcement_learning.training.sweep import SearchSpace, read_sweep
from tests.activation_store.exchange.test_original_tools import as_original, truth
from tests.activation_store.test_sparse_dictionary import dictionary
from tests.agent_zoo.original.test_curriculum import VECTORS
from tests.agent_zoo.original.test_file import FOUR, archive, network, pickled
from tests.analysis.interventions.test_outputs import GOOD
from tests.analysis.world_model.conftest import Recorded, recorded_of
from tests.fuzz import Bench, file_reader, junk, read_or_refuse, reader
from tests.original_files import call, saved_curriculum
from tests.planted_interventions import EDIT, Planted, plant
from tests.planted_training_runs import plant_run
from tests.readers.dumps import wholes

STATES = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
SWEEP = b"method: random\nmetric: {name: score, goal: maximize}\nparameters:\n  train.gamma: {min: 0.9, max: 0.99}\n"


def put(name: str, content: bytes, folder: Path) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def lines(*contents: object) -> bytes:
    return b"".join(orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE) for content in contents)


def written(name: str, content: bytes) -> Any:
    """How to write a file whose bytes are known."""
    return lambda bench, folder: put(name, content, folder)


def made(name: str, make: Callable[[Path], object]) -> Any:
    """How to write a file by a function of its path."""

    def write(bench: Bench, folder: Path) -> Path:
        make(folder / name)
        return folder / name

    return write


def journal(bench: Bench, folder: Path) -> Path:
    Journal(read_metadata(wholes(bench)["json"]).to_json()).write(folder)
    return next(folder.iterdir())


def parts(bench: Bench, folder: Path) -> Path:
    Parts(folder / "run", {"seed": 1}).arrays("stage", lambda: {"values": np.arange(6.0)})
    return folder / ".run.parts" / "stage.npz"


def training_run(bench: Bench, folder: Path) -> Path:
    return plant_run(folder, "x", 1, {"score": float}, updates=3)


@functools.cache
def specs(bench: Bench) -> tuple[TaskSpec, ...]:
    return tuple(curriculum(bench["task"], bench["small_world"]))


def world_model(bench: Bench, folder: Path) -> Path:
    save_model(folder / "model.safetensors", small_model(bench), recorded(bench).origin())
    return folder / "model.safetensors"


@functools.cache
def recorded(bench: Bench) -> Recorded:
    return recorded_of(bench["features_dump"])


@functools.cache
def small_model(bench: Bench) -> WorldModel:
    return recorded(bench).model()


def lives() -> LivesTable:
    return plant(Planted({EDIT: {"ticks": -25.0}}, doses=(1.0,), agents=6, edited=3, episodes=1))[0]


def original_records() -> bytes:
    records = truth(agents=1, episodes=1, ticks=2)
    return orjson.dumps([as_original(records, i) for i in range(len(records))])


def rows_of_group(path: Path) -> LivesTable:
    played: Any = SimpleNamespace(_path=lambda _: path, _has_replay=lambda *_: True)
    return LivesTable.of_rows(PlayedArms._stored(played, ArmGroup(0, (0,), "edit")) or [])


def map_files(bench: Bench, folder: Path) -> Path:
    for name in ("map.npy", "fractal.npy"):
        np.save(folder / name, np.full((8, 8), 2))
    return folder / "map.npy"


def claimed(path: Path) -> Any:
    """Settings of a run that is continued."""
    return SimpleNamespace(folder=path.parent, training_folder=path.parent, resume=True, plain=dict)


def sweep_folder(folder: Path) -> Path:
    space = SearchSpace("random", "score", "maximize", {"train.gamma": {"min": 0.9, "max": 0.99}})
    return SweepFolder(folder, space, "takeru", Settings()).path


def with_tasks(bench: Bench, folder: Path) -> Path:
    save_weights(folder / "weights.json", specs(bench), np.ones(len(specs(bench))))
    SPECS.append(specs(bench))
    return folder / "weights.json"


@reader("agent_zoo.original.file:read_original", "agent_zoo.original.inert_pickle:__init__", cases=200)
def originals(bench: Bench, folder: Path, data: st.DataObject) -> None:
    program, storages = pickled(network(scale=call("numpy", "ndarray", 3))), {"0": FOUR}
    in_pickle = data.draw(st.booleans(), label="in the pickle")
    content = archive(junk(data, program), storages) if in_pickle else junk(data, archive(program, storages))
    path = put("a.pt", content, folder)
    original = read_or_refuse(lambda: read_original(path), path)
    assert original is None or all(isinstance(values, torch.Tensor) for values in original.tensors.values())


SPECS: list[tuple[TaskSpec, ...]] = []
NORMAL = normalisation(STATES, 0)
TRIALS = [asdict(Trial(number, f"x_{number}", "finished", {"train.gamma": 0.9}, 1.0, 10)) for number in range(2)]
RATINGS = [{"learner": 1000.0 + one, "others": {"a": 990.0}, "games": {"a": one}} for one in range(3)]
ROW = {"arm": "edit", "episode": 0, "agent": 1, "edited": True, "ticks": 12.0}
CACHED = {"0" * 64: np.ones(4, np.float32)}
METRICS = [{"records": 10 * one, "test/loss": 0.5} for one in range(1, 4)]

file_reader("activation_store.writer:read_journal", write=journal, read=lambda path: read_journal(path.parent))
file_reader(
    "activation_store.exchange.original_tools:_objects",
    write=made("dump.json", lambda path: path.write_bytes(original_records())),
    read=lambda path: convert(path, path.parent / "new", "parquet", None, lambda _: None),
)  # fmt: skip
file_reader(
    "activation_store.interventions:_read_table", read=read_lives, cases=80,
    write=made("lives.parquet", lambda path: write_lives(path, lives())),
)  # fmt: skip
file_reader(
    "activation_store.sparse_dictionary:read_dictionary", read=read_dictionary,
    write=made("x.safetensors", lambda path: write_dictionary(path, dictionary())), kind="sparse dictionary", cases=80,
)  # fmt: skip
file_reader(
    "analysis.sparse.training:read", kind="autoencoder training",
    write=made("x.safetensors", Training(FitPlan("topk", 6, 2, 0, 3), NORMAL).write),
    read=lambda path: Training.read(path, FitPlan("topk", 6, 2, 0, 3), NORMAL),
)  # fmt: skip
file_reader(
    "analysis.sparse.fitting:_read_curve",
    write=written("x.curve.json", orjson.dumps([asdict(Epoch(1, 50, 0.5, 0.1, 3.0, 0)) for _ in range(2)])),
    read=lambda path: _read_curve(path.parent, FitPlan("topk", 4, 2, 0, 3, "x")),
)
file_reader(
    "agent_zoo.original.curriculum:read_curriculum", write=written("a.pkl", saved_curriculum(VECTORS)),
    read=read_curriculum, cases=100,
)  # fmt: skip
file_reader(
    "analysis.interventions.effects.pairs:read_run_file", read=read_run_file,
    write=written("run.json", orjson.dumps(with_checksum(GOOD))), cases=100,
)  # fmt: skip
file_reader(
    "analysis.runs.codebook_rule:_whole_names",
    write=written("labels.yaml", b"0: eats\n1: 'flees'\n"),
    read=lambda path: read_names(path.parent),
)
file_reader(
    "analysis.runs.run_folder:_read", "common.array_files:arrays_of", write=parts,
    read=lambda path: Parts(path.parents[1] / "run", {"seed": 1}).arrays("stage", lambda: {"values": np.arange(6.0)}),
)  # fmt: skip
file_reader(
    "analysis.runs.run_folder:_stored_key",
    write=lambda bench, folder: parts(bench, folder).with_name("key.json"),
    read=lambda path: Parts(path.parents[1] / "run", {"seed": 1}),
)
file_reader(
    "analysis.training_runs.run:_settings",
    read=lambda path: read_run(path.parent),
    write=lambda bench, folder: training_run(bench, folder) / "settings.json",
)
file_reader(
    "analysis.training_runs.run:read_run",
    read=lambda path: read_run(path.parent),
    write=lambda bench, folder: training_run(bench, folder) / "metrics.jsonl",
)
file_reader(
    "reinforcement_learning.training.curves:read_curves",
    read=read_curves,
    write=lambda bench, folder: training_run(bench, folder) / "metrics.jsonl",
)
file_reader(
    "analysis.training_runs.held_out:_checkpoint_hashes",
    write=written("SHA256SUMS", b"ab" * 32 + b"  x_1.safetensors\n"),
    read=lambda path: _checkpoint_hashes(path.parent),
)
file_reader(
    "analysis.world_model.training:_keep_lines", "analysis.world_model.training:_headline",
    "analysis.world_model.training:draw_curves", "common.files:read_json_lines",
    "reinforcement_learning.training.local_sweep:_judged",
    "reinforcement_learning.training.run_folder:keep_metrics", write=written("metrics.jsonl", lines(*METRICS)),
    read=lambda path: (world_training._keep_lines(path, 3), read_json_lines(path)),
)  # fmt: skip
file_reader(
    "reinforcement_learning.game.task_encoder:_read",
    write=made("x.safetensors", lambda path: write_embeddings(path, {"a": np.ones(8, np.float32)}, "a test")),
    kind="task embeddings",
    read=lambda path: file_embeddings(["a"], TaskSettings(encoder="file", embedding_size=8, embeddings=str(path))),
)
file_reader(
    "reinforcement_learning.game.task_encoder:_read_cache", read=_read_cache, kind="task embeddings",
    write=made("x.safetensors", lambda path: write_tensors(path, CACHED, "", "task embeddings")),
)  # fmt: skip
file_reader(
    "reinforcement_learning.game.tasks:read_weights", write=with_tasks, read=lambda path: read_weights(path, SPECS[-1]),
)  # fmt: skip
file_reader(
    "reinforcement_learning.training.opponents:after",
    write=written("elo.jsonl", lines(*RATINGS)),
    read=lambda path: Ratings.after(path.parent, 3),
)
file_reader(
    "reinforcement_learning.training.sweep:read_sweep",
    write=written("sweep.yaml", SWEEP),
    read=lambda path: read_sweep(path, Settings()),
)
file_reader(
    "reinforcement_learning.training.local_sweep:_read_trials",
    write=written("trials.jsonl", lines(*TRIALS)),
    read=_read_trials,
)
file_reader("analysis.world_model.model:load_model", write=world_model, kind="world model", read=load_model)
file_reader(
    "analysis.interventions.play.intervention_run:_stored", read=rows_of_group, cases=80,
    write=written("arm000-000000.json", orjson.dumps(with_checksum({"arm": "edit", "numbers": [0], "rows": [ROW]}))),
)  # fmt: skip
file_reader(
    "reinforcement_learning.game.maps:_looks_like_a_map",
    write=map_files,
    read=lambda path: _looks_like_a_map(path.parent),
)
file_reader(
    "analysis.interventions.play.intervention_run:_claim",
    write=written("run.json", orjson.dumps(with_checksum({"seed": 1}))),
    read=lambda path: _claim(path.parent, {"seed": 1}, resume=True),
)
file_reader(
    "analysis.sparse.fitting:claim",
    write=written("plan.json", orjson.dumps(with_checksum({"seed": 1}))),
    read=lambda path: claim(claimed(path), {"seed": 1}),
)
file_reader(
    "analysis.world_model.training:_claim",
    write=written("settings.json", orjson.dumps({"decided": {"seed": 1}})),
    read=lambda path: world_training._claim(claimed(path), '{"seed":1}'),
)
file_reader(
    "reinforcement_learning.training.local_sweep:__init__",
    write=lambda bench, folder: sweep_folder(folder) / "sweep.json",
    read=lambda path: sweep_folder(path.parent),
)
