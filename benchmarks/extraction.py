"""Cost of recording: compared with playing without it, in bytes, and when reading the dump.

    python -m benchmarks.extraction policies/start_kit_3M.safetensors
    python -m benchmarks.extraction policies/start_kit_3M.safetensors --output extraction.json

Each group of episodes is played twice: without recording, then recorded to parquet with the default fields. The result
is the ratio of the two speeds per group, in processor time of one process. Then the dump is read and the 14 default
features are computed, alternating with a plain loop over the records of the same dump as JSON. Four ways of reading are
timed: what the features need, that and the activations, every tenth record of that, and all recorded data. These are
wall-clock times of one process.
"""

import functools
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from activation_store.exchange.export import convert
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata
from activation_store.selection import Subsample
from activation_store.writer import DumpWriter
from agent_zoo.checkpoint import versions
from analysis.features import FEATURE_NAMES, feature_matrix
from benchmarks.measure import Output, seconds_of, spread
from common import command_line
from common.user_error import UserError
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.play.contest import Contest, Group, groups
from reinforcement_learning.play.entrants import load_entrant
from reinforcement_learning.play.extraction import Recorded, RecordingPlan, metadata_of, record_group, write
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings

LAYERS = ("action_decoder",)
_NEEDED: dict[str, Any] = {"columns": [], "leave_out": ["tile", "tables", "reward", "value", "log_probability"]}
WAYS_OF_READING: dict[str, dict[str, Any]] = {
    "features": {**_NEEDED, "layers": []},
    "features and activations": _NEEDED,
    "of that, every tenth record": {**_NEEDED, "subsample": Subsample(10)},
    "features, and all that is recorded": {},
}
"""Way of reading a dump -> arguments of `read_dump`."""

LOOPS = {False: ["features"], True: [name for name in WAYS_OF_READING if name != "features"]}
"""Whether the plain loop builds arrays of activations -> the way of reading that it is compared with."""

RECORDS_OF_NOTE = 300_000


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/extraction.py."""

    checkpoint: tyro.conf.Positional[Path]
    """Policy to play."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 8
    """Number of episodes to play twice, four in parallel, at least 1."""
    max_steps: int = 256
    """Maximum number of ticks per episode, at least 1."""
    loop_records: int = 2000
    """Number of records, spread over the dump, to time the plain loop over JSON on, at least 1."""
    turns: int = 5
    """Number of times to measure reading and the loop, at least 1."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""


@dataclass(frozen=True)
class Result:
    """The measurements."""

    plain_speeds: list[float]  # agent-steps per processor second of playing, one per group of episodes
    recorded_speeds: list[float]  # likewise of playing and recording
    record_bytes: float  # on disk, with one 256-d layer in float32 and the default fields
    records: int
    # reading: way of `WAYS_OF_READING` -> seconds to read the dump and compute the features, one per turn
    reading: dict[str, list[float]]
    loop: dict[str, list[float]]  # likewise for the plain loop over JSON, for the same number of records

    @property
    def ratios(self) -> list[float]:
        """Speed of recording relative to playing."""
        return [one / other for one, other in zip(self.recorded_speeds, self.plain_speeds, strict=True)]

    def times_the_loop(self, reading: str) -> list[float]:
        """Speed of a way of reading relative to the plain loop."""
        return [loop / read for loop, read in zip(self.loop[reading], self.reading[reading], strict=True)]


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if min(arguments.episodes, arguments.max_steps, arguments.loop_records, arguments.turns) < 1:
        raise UserError("--episodes, --max-steps, --loop-records and --turns must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(arguments, Path(scratch))
    show(result)
    arguments.write({**asdict(result), "ratios": result.ratios, "versions": versions()})


def measure(arguments: Arguments, scratch: Path) -> Result:
    """Play, record and read."""
    everybody = {"early_stop_agents": 0, "resilient_population": 0.0}
    contest = contest_of(arguments.checkpoint, arguments.maps_dir, **everybody)
    plan = RecordingPlan(arguments.episodes, arguments.max_steps, 1, LAYERS, format="parquet")
    dump = scratch / "dump"
    plain, recorded = [], []
    with DumpWriter(dump, metadata_of(contest, contest.entrants[0], plan)) as writer:
        for group in groups(plan.seed, plan.episodes):
            plain.append(playing_speed(contest, plan, group))
            recorded.append(recording_speed(contest, plan, group, writer))
    metadata = read_metadata(dump)
    size = sum(file.bytes for file in metadata.files.values())
    convert(dump, scratch / "json", "json", None, report=lambda share: None)
    reading, loop = reading_seconds(dump, scratch / "json", metadata, arguments)
    return Result(plain, recorded, size / metadata.records, metadata.records, reading, loop)


def reading_seconds(
    dump: Path, json_dump: Path, metadata: DumpMetadata, arguments: Arguments
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Alternate between reading the dump in each way and looping over the records; seconds are as in `Result`."""
    reading: dict[str, list[float]] = {name: [] for name in WAYS_OF_READING}
    loop: dict[str, list[float]] = {name: [] for name in WAYS_OF_READING}
    chosen = np.linspace(0, metadata.records - 1, min(arguments.loop_records, metadata.records)).astype(int)
    expected = read_with_features(dump, metadata, {})[chosen]
    lines = lines_of(json_dump / "activations.json", chosen)
    for _ in range(arguments.turns):
        for with_activations, names in LOOPS.items():
            seconds = loop_seconds_a_record(lines, metadata, expected, with_activations)
            for name in names:
                work = functools.partial(read_with_features, dump, metadata, WAYS_OF_READING[name])
                work()  # to warm up
                reading[name].append(seconds_of(work, time.perf_counter))
                loop[name].append(seconds * metadata.records)
    return reading, loop


def read_with_features(dump: Path, metadata: DumpMetadata, options: dict[str, Any]) -> np.ndarray:
    """Read a dump and compute the default features."""
    return feature_matrix(read_dump(dump, **options), metadata)


def contest_of(checkpoint: Path, maps_dir: Path, **world: object) -> Contest:
    """Return a contest in which the policy plays all agents of its training world, but for what is given of it."""
    entrant = load_entrant(checkpoint)
    settings: dict[str, Any] = {**entrant.info.environment, "maps_dir": maps_dir, **world}
    env = EnvironmentSettings(**settings)
    return Contest((entrant,), env, TaskSettings(**entrant.info.task), ensure_maps(env), torch.device("cpu"))


def playing_speed(contest: Contest, plan: RecordingPlan, group: Group) -> float:
    """Agent-steps per processor second of playing a group without recording it."""
    pool, agent_steps = contest.pool(len(group.numbers)), 0
    start = time.process_time()
    pool.start(group.seed, group.numbers)
    for _ in range(plan.most_ticks or 0):
        agent_steps += int(pool.arrival.acting.sum())
        pool.step()
    seconds = time.process_time() - start
    pool.close()
    return agent_steps / seconds


def recording_speed(contest: Contest, plan: RecordingPlan, group: Group, writer: DumpWriter) -> float:
    """Records per processor second of playing and recording the same group."""
    pool, records = contest.pool(len(group.numbers)), 0

    def count(recorded: Recorded) -> None:
        nonlocal records
        records = recorded.records

    start = time.process_time()
    events = record_group(pool, group, plan.layers, plan.fields, plan.most_ticks)
    write(((group, event) for event in events), [writer], count)
    seconds = time.process_time() - start
    pool.close()
    return records / seconds


def loop_seconds_a_record(
    lines: Sequence[str], metadata: DumpMetadata, expected: np.ndarray, with_activations: bool
) -> float:
    """Time a plain loop over records, one per line; it must find the expected features, one row per record."""
    rows: list[list[float]] = []
    start = time.perf_counter()
    for line in lines:
        record = json.loads(line)
        if with_activations:
            np.array(record["activation"], dtype=np.float32)
        rows.append(plain_features(record, metadata))
    seconds = time.perf_counter() - start
    assert np.array_equal(np.array(rows), expected), "the plain loop computes other features"
    return seconds / len(rows)


def lines_of(path: Path, chosen: np.ndarray) -> list[str]:
    """Return the lines of some records of a JSON dump, by index."""
    wanted = set(chosen.tolist())
    with path.open(encoding="utf-8") as file:
        records = (line for line in file if len(line) > 2)
        return [line.strip().rstrip(",") for place, line in enumerate(records) if place in wanted]


def plain_features(record: dict, metadata: DumpMetadata) -> list[float]:
    """Compute the 14 default features of one record in the most straightforward way."""
    place = {name: number for number, name in enumerate(metadata.entity_columns)}
    rows, tick = record["observation"]["Entity"], record["tick"]
    (own,) = [row for row in rows if row[place["id"]] == record["agent_id"]]
    npcs = sum(row[place["npc_type"]] > 0 for row in rows)
    chosen = {}
    for head, action in zip(metadata.action_heads, record["action"], strict=True):
        chosen[head.name] = head.noop is not None and action != head.noop
    latest = own[place["latest_combat_tick"]]
    gives = chosen["Give.InventoryItem"] and chosen["Give.Target"]
    trades = gives or chosen["Buy.MarketItem"] or chosen["Sell.InventoryItem"] or chosen["GiveGold.Target"]
    values = {
        "n_visible_entities": len(rows) - 1,
        "n_visible_npcs": npcs,
        "n_visible_players": len(rows) - 1 - npcs,
        **{f"self_{name}": own[place[name]] for name in ("health", "food", "water", "gold")},
        "max_combat_level": max(own[place[f"{style}_level"]] for style in ("melee", "range", "mage")),
        "in_combat": latest > 0 and tick - latest < metadata.combat_status_ticks,
        "n_inventory_items": len(record["observation"]["Inventory"]),
        "tick": tick,
        "is_moving": chosen["Move.Direction"],
        "is_attacking": chosen["Attack.Target"],
        "is_trading": trades,
    }
    return [float(values[name]) for name in FEATURE_NAMES]


def show(result: Result) -> None:
    """Print speeds, sizes and ratios."""
    rows = [
        ("agent-steps/s, playing", spread(result.plain_speeds, ".0f")),
        ("agent-steps/s, recording to parquet", spread(result.recorded_speeds, ".0f")),
        ("recording against playing", spread(result.ratios, ".2f")),
        ("bytes a record", f"{result.record_bytes:.0f}"),
        ("records", f"{result.records:,}"),
    ]
    command_line.print_table(("", "median (minimum to maximum) of groups of episodes"), rows)
    read = [
        (
            name,
            spread([second / result.records * RECORDS_OF_NOTE for second in seconds], ".2f"),
            spread(result.times_the_loop(name), ".0f"),
        )
        for name, seconds in result.reading.items()
    ]
    headings = ("reading and features", f"seconds for {RECORDS_OF_NOTE:,} records", "times the plain loop over JSON")
    command_line.print_table(headings, read)


if __name__ == "__main__":
    command_line.run(main)
