"""What recording costs: against playing without it, in bytes, and when it is read again.

    python -m benchmarks.extraction policies/start_kit_3M.safetensors
    python -m benchmarks.extraction policies/start_kit_3M.safetensors --output extraction.json

The same episodes are played twice in turns, first plainly, then recorded to parquet with the default fields; the ratio
of their speeds is the result, once for each group of episodes. Then the dump is read and the 14 default features are
computed, in turns with a plain loop over the records of the same dump as JSON: all that is recorded, only what the
loop looks at (activations, entities, items, actions, clock), and of that every tenth record. Processor times, of one
process.
"""

import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro

import command_line
from activation_store.conversion import convert
from activation_store.files import write_json
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata
from activation_store.writer import DumpWriter
from analysis.features import FEATURE_NAMES, feature_matrix
from benchmarks.measure import spread
from reinforcement_learning.contest import Contest, Group, groups
from reinforcement_learning.entrants import load_entrant
from reinforcement_learning.extraction import Plan, metadata_of, record_group, write
from reinforcement_learning.maps import ensure_maps
from reinforcement_learning.recording_progress import Recorded
from reinforcement_learning.settings import EnvironmentSettings, TaskSettings
from reinforcement_learning.versions import versions
from user_error import UserError

LAYERS = ("action_decoder",)
_LOOKED_AT: dict[str, Any] = {"columns": [], "leave_out": ["tile", "tables"]}
WAYS_OF_READING: dict[str, dict[str, Any]] = {
    "all that is recorded": {},
    "what the loop looks at": _LOOKED_AT,
    "of that, every tenth record": {**_LOOKED_AT, "subsample": 10},
}
RECORDS_OF_NOTE = 300_000


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/extraction.py."""

    checkpoint: tyro.conf.Positional[Path]
    """Policy to play."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 8
    """Episodes to play twice, four side by side."""
    max_steps: int = 256
    """Most ticks of each episode."""
    loop_records: int = 2000
    """Records that the plain loop over JSON is timed on."""
    turns: int = 5
    """Times that reading and the loop are timed."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file for the result."""


@dataclass(frozen=True)
class Result:
    """What was measured.

    Attributes:
        plain_speeds: agent-steps per processor second of playing, one a group of episodes.
        recorded_speeds: likewise of playing and recording.
        record_bytes: on the disk, one 256-d layer in float32 and the default fields.
        records: in the dump.
        reading: how the dump is read -> processor seconds to read it and compute the features, one a turn.
        loop_seconds: of the plain loop over JSON, for as many records, one a turn.
    """

    plain_speeds: list[float]
    recorded_speeds: list[float]
    record_bytes: float
    records: int
    reading: dict[str, list[float]]
    loop_seconds: list[float]

    @property
    def ratios(self) -> list[float]:
        """Speed of recording against that of playing."""
        return [one / other for one, other in zip(self.recorded_speeds, self.plain_speeds, strict=True)]

    def times_the_loop(self, reading: str) -> list[float]:
        """Speed of reading in some way against that of the plain loop."""
        return [loop / read for loop, read in zip(self.loop_seconds, self.reading[reading], strict=True)]


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if min(arguments.episodes, arguments.max_steps, arguments.loop_records, arguments.turns) < 1:
        raise UserError("--episodes, --max-steps, --loop-records and --turns must be at least 1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(arguments, Path(scratch))
    show(result)
    if arguments.output:
        write_json(arguments.output, {**asdict(result), "ratios": result.ratios, "versions": versions()})


def measure(arguments: Arguments, scratch: Path) -> Result:
    """Play, record and read."""
    contest = contest_of(arguments)
    plan = Plan(arguments.episodes, arguments.max_steps, 1, LAYERS, format="parquet")
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
) -> tuple[dict[str, list[float]], list[float]]:
    """Read the dump in each way, and loop over the records, in turns; `Result` says what the seconds are."""
    reading: dict[str, list[float]] = {name: [] for name in WAYS_OF_READING}
    loop = []
    for _ in range(arguments.turns):
        for name, options in WAYS_OF_READING.items():
            work = functools.partial(read_with_features, dump, metadata, options)
            reading[name].append(processor_seconds(work))
        loop.append(loop_seconds_a_record(json_dump, metadata, arguments.loop_records) * metadata.records)
    return reading, loop


def read_with_features(dump: Path, metadata: DumpMetadata, options: dict[str, Any]) -> np.ndarray:
    """Read a dump and compute the default features."""
    return feature_matrix(read_dump(dump, **options), metadata)


def contest_of(arguments: Arguments) -> Contest:
    """Let the policy play alone in the world that it was trained in, as extraction does."""
    entrant = load_entrant(arguments.checkpoint)
    world = {**entrant.info.environment, "early_stop_agents": 0, "resilient_population": 0.0}
    env = EnvironmentSettings(**{**world, "maps_dir": arguments.maps_dir})
    return Contest((entrant,), env, TaskSettings(**entrant.info.task), ensure_maps(env), torch.device("cpu"))


def playing_speed(contest: Contest, plan: Plan, group: Group) -> float:
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


def recording_speed(contest: Contest, plan: Plan, group: Group, writer: DumpWriter) -> float:
    """Records per processor second of playing and recording the same group."""
    pool, records = contest.pool(len(group.numbers)), 0

    def count(recorded: Recorded) -> None:
        nonlocal records
        records = recorded.records

    start = time.process_time()
    told = record_group(pool, group, plan.layers, plan.fields, plan.most_ticks)
    write(((group, each) for each in told), [writer], count)
    seconds = time.process_time() - start
    pool.close()
    return records / seconds


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor seconds of some work, the second time that it is done."""
    work()
    start = time.process_time()
    work()
    return time.process_time() - start


def loop_seconds_a_record(folder: Path, metadata: DumpMetadata, count: int) -> float:
    """Time a plain loop over records; its features must be those of the registry."""
    found: list[list[float]] = []
    start = time.process_time()
    for record in json_records(folder / "activations.json", count):
        np.array(record["activation"], dtype=np.float32)
        found.append(plain_features(record, metadata))
    seconds = time.process_time() - start
    expected = feature_matrix(read_dump(folder), metadata)[: len(found)]
    assert np.array_equal(np.array(found), expected), "the plain loop computes other features"
    return seconds / len(found)


def json_records(path: Path, count: int) -> Iterator[dict]:
    """Parse the first records of a JSON dump, line by line."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if len(line) > 2:
                yield json.loads(line.strip().rstrip(","))
                count -= 1
            if count == 0:
                return


def plain_features(record: dict, metadata: DumpMetadata) -> list[float]:
    """Compute the 14 default features of one record, as one would write them down at first."""
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
    command_line.print_table(("", "median (least to most) of groups of episodes"), rows)
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
