"""However a writing process ends, readers refuse its unfinished dump, and resuming completes it exactly."""

import dataclasses
import signal
import textwrap
from pathlib import Path

import numpy as np
import pytest

from activation_store.reader import read_dump
from activation_store.schema import JOURNAL_FILE, METADATA_FILE
from activation_store.writer import DumpWriter, state_of
from common.files import locked_folder
from common.user_error import UserError
from tests.activation_store.test_round_trip import assert_same_records, completed
from tests.command import assert_refuses, python
from tests.planted import Planted, planted_dump, with_optional_parts

EPISODES = 3
WRITE = textwrap.dedent(
    """
    import os, pathlib, signal, sys
    from tests.activation_store.test_resume import planted_in, write

    call, which = sys.argv[3], int(sys.argv[4])
    place, name = (os, "fsync") if call == "os.fsync" else (pathlib.Path, call.rsplit(".", 1)[1])
    original, calls = getattr(place, name), 0

    def killed(*arguments, **options):
        global calls
        calls += 1
        if calls == which:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(place, name, killed)
    write(pathlib.Path(sys.argv[1]), planted_in(sys.argv[2]), resume=True)
    """
)


def planted_in(form: str) -> Planted:
    planted = with_optional_parts(planted_dump(agents=3, episodes=EPISODES, ticks=8, layers={"action_decoder": 4}))
    return dataclasses.replace(planted, metadata=dataclasses.replace(planted.metadata, format=form))


def write(folder: Path, planted: Planted, resume: bool = False) -> list[int]:
    """Write the missing episodes one by one, as an extraction does; return their numbers."""
    missing = []
    with DumpWriter(folder, planted.metadata, resume=resume) as writer:
        for episode in range(EPISODES):
            if episode not in writer.stored:
                missing.append(episode)
                chosen = np.flatnonzero(planted.records.episode == episode)
                for part in np.array_split(chosen, 3):
                    writer.write(planted.records.take(part))
                writer.finish_episode(episode, {"episode": episode, "seed": 7})
        writer.close()
    return missing


def interrupted(folder: Path, planted: Planted, *episodes: int) -> None:
    """Write all records, finish these episodes, and be interrupted."""
    with pytest.raises(KeyboardInterrupt), DumpWriter(folder, planted.metadata) as writer:
        writer.write(planted.records)
        for episode in episodes:
            writer.finish_episode(episode, {"episode": episode, "seed": 7})
        raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module", params=["json", "parquet"])
def form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def uninterrupted(form: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("dumps") / "whole"
    write(folder, planted_in(form))
    return contents(folder)


@pytest.mark.parametrize(
    ("call", "which"),
    [
        *(("os.fsync", which) for which in (1, 3, 5, 8, 13)),
        *(("pathlib.Path.replace", which) for which in (2, 6, 9)),
        *(("pathlib.Path.unlink", which) for which in (1, 3)),
    ],
)
def test_killed_at_any_moment_then_resumed(
    form: str, uninterrupted: dict[str, bytes], tmp_path: Path, call: str, which: int
) -> None:
    folder = tmp_path / "dump"
    killed = python("-c", WRITE, folder, form, call, which, code=None)
    if killed.returncode == 0:
        pytest.skip("there are fewer such calls in this format")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if state_of(folder) == "whole":  # killed while cleaning up
        assert len(read_dump(folder)) == len(planted_in(form).records)
        assert_refuses("already holds a dump", write, folder, planted_in(form), resume=True)
    else:
        assert_refuses("interrupted", read_dump, folder)
        write(folder, planted_in(form), resume=True)
    assert contents(folder) == uninterrupted


def test_an_exception_keeps_the_finished_episodes(form: str, tmp_path: Path) -> None:
    planted = planted_in(form)
    interrupted(tmp_path, planted, 1)
    assert state_of(tmp_path) == "unfinished" and len(list(tmp_path.iterdir())) == 2
    assert_refuses("unfinished one: delete it first, or resume its extraction", write, tmp_path, planted)
    assert write(tmp_path, planted, resume=True) == [0, 2]
    assert_same_records(read_dump(tmp_path), completed(planted.records))


def test_a_stored_episode_that_was_damaged_is_written_again(form: str, tmp_path: Path) -> None:
    planted = planted_in(form)
    interrupted(tmp_path, planted, 0, 1)
    (first,) = tmp_path.glob("episode-000000.*")
    first.write_bytes(bytes(first.stat().st_size))
    assert write(tmp_path, planted, resume=True) == [0, 2]


def test_episodes_may_be_written_side_by_side(form: str, uninterrupted: dict[str, bytes], tmp_path: Path) -> None:
    planted = planted_in(form)
    shuffled = np.argsort(planted.records.tick, kind="stable")
    with DumpWriter(tmp_path, planted.metadata) as writer:
        for part in np.array_split(shuffled, 11):
            writer.write(planted.records.take(part))
        writer.close([{"episode": episode, "seed": 7} for episode in range(EPISODES)])
    if form == "json":  # JSON does not depend on batches; records of an episode are in the order of writing
        assert contents(tmp_path) == uninterrupted
    assert_same_records(read_dump(tmp_path), completed(planted.records))


def test_other_settings_are_no_resumption(form: str, tmp_path: Path) -> None:
    planted = planted_in(form)
    interrupted(tmp_path, planted, 0)
    for name, value in (("seed", 5), ("policy", "another"), ("layers", {"lstm_cell": 4})):
        other = dataclasses.replace(planted.metadata, **{name: value})
        message = rf"started with different settings \({name}\)"
        with pytest.raises(UserError, match=message), DumpWriter(tmp_path, other, resume=True):
            pytest.fail("the block must not run")


def test_two_writers_keep_out_of_each_others_way(tmp_path: Path) -> None:
    planted = planted_in("parquet")
    with locked_folder(tmp_path), pytest.raises(UserError, match="another process is writing"):
        write(tmp_path, planted, resume=True)
    write(tmp_path, planted, resume=True)


def test_an_episode_is_stored_once(tmp_path: Path) -> None:
    planted = planted_in("parquet")
    with DumpWriter(tmp_path, planted.metadata) as writer:
        writer.finish_episode(0, {"episode": 0})
        with pytest.raises(ValueError, match="already stored"):
            writer.write(planted.records)
        with pytest.raises(ValueError, match="already stored"):
            writer.finish_episode(0)
    assert not (tmp_path / JOURNAL_FILE).exists() and (tmp_path / METADATA_FILE).exists()
