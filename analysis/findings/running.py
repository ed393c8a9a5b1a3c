"""Run the stages of a study, and show them: what is finished is skipped, what was interrupted goes on."""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict

from analysis.findings.crews import POLL_SECONDS, Crew, LocalCrew, LostError, Running
from analysis.findings.page import History, Named, Played
from analysis.findings.stage_commands import command_words, places
from analysis.findings.study_file import HERE, Stage, Study
from common.checked_json import in_shape
from common.files import make_folder, read_bytes, read_json, sha256, visible, write_json
from common.number_text import plural
from common.user_error import UserError, one_line

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT_RESULTS = Path("study_results")
STATE_FILE = "study.json"
LOCK_FILE = "study.lock"
PRIMARY_FILE = "primary.json"
Action = Literal["skip", "run", "continue"]
_MOST_LOSSES = 3
_LAST_LINES = 40


@dataclass(frozen=True)
class StageState:
    """What is known of a stage that was begun."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    key: str  # hash of its command and of all that it reads
    command: str
    read: dict[str, str]  # SHA-256 of each file that it read, by path
    seconds: float  # that it has taken so far
    files: dict[str, int] | None = None
    """Size of each file that it left, by path in its folder; None until it is finished."""


@dataclass(frozen=True)
class StudyPlan:
    """What running a study would do."""

    stage: Stage
    action: Action  # finished stages are skipped, interrupted ones continued or begun again
    state: StageState  # in which the stage begins, with the seconds that it has taken if it is continued
    minutes: float  # left, as an estimate


Report = Callable[[StudyPlan, str, float], None]
"""Called with a plan, its state (waiting, running, done), and the seconds that the stage has taken."""


@dataclass(eq=False)
class StudyRun:
    """A study in its folder of results."""

    study: Study
    folder: Path  # holds a folder and a log for each stage
    scripts: Path  # folder of the scripts; commands are run from there
    states: dict[str, StageState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (path := self.folder / STATE_FILE).exists():
            advice = f"delete {self.folder} and run the study again"
            self.states = in_shape(dict[str, StageState], read_json(path), f"{path} is damaged", advice)

    def plan(self) -> list[StudyPlan]:
        """Return what is left to do, in order.

        Raises:
            UserError: a file that a stage reads does not exist.
        """
        plans: list[StudyPlan] = []
        for stage in self.study.stages:
            read, command = hashes([Path(path) for path in stage.reads], self.scripts), self._filled(stage, stage.run)
            keys = {plan.stage.name: plan.state.key for plan in plans}
            needed = {name: keys[name] for name in sorted(stage.needs(set(keys)))}
            key = hashlib.sha256(json.dumps([command, read, needed], sort_keys=True).encode()).hexdigest()
            action, spent = self._action(stage, key)
            minutes = 0.0 if action == "skip" else max(0.0, stage.minutes - spent / 60)
            plans.append(StudyPlan(stage, action, StageState(key, command, read, spent), minutes))
        return plans

    def run(self, plans: Sequence[StudyPlan], report: Report, crew: Crew | None = None) -> History:
        """Do what is left, and return all stages as they were run, and since when the primary outcomes were named.

        Args:
            report: called while stages wait and run, and when they are done.
            crew: runs the commands; by default one after the other on this machine.

        SIGTERM ends the running stages too, and then this process.

        Raises:
            UserError: a stage failed; the message names it, its last line and its log. Or a stage of this study is
                still running, of another call or of one that was killed. Or something else lies where a stage writes.
        """
        make_folder(self.folder)
        self._refuse_foreign(plans)
        with _ends_by_sigterm(), _only_call(self.folder) as lock:
            primary = self._named()
            self._run_all(
                [plan for plan in plans if plan.action != "skip"], report, crew or LocalCrew(self.scripts), lock
            )
        usual = DEFAULT_RESULTS / self.folder.name  # named by commands of the page, wherever this study's folder is
        played = [
            Played(stage.name, self._filled(stage, stage.run, usual), state.seconds, state.read)
            for stage, state in ((stage, self.states[stage.name]) for stage in self.study.stages)
        ]
        return History(played, primary)

    def _refuse_foreign(self, plans: Sequence[StudyPlan]) -> None:
        """Refuse what a stage would replace and this study did not write: only stages that were begun are removed."""
        for name in (plan.stage.name for plan in plans):
            for path in (self.folder / name, self.folder / f"{name}.log"):
                if path.is_symlink() or (path.exists() and name not in self.states):
                    raise UserError(f"{path} is not of this study: move it away, or choose another --results-dir")

    def _named(self) -> Named | None:
        """Return when the primary outcomes were named: today, if they are others than before in this folder."""
        path, outcomes = self.folder / PRIMARY_FILE, [str(outcome) for outcome in self.study.primary]
        if not outcomes:
            path.unlink(missing_ok=True)
            return None
        if path.exists():
            advice = "delete it, and the outcomes count as named today"
            before = in_shape(Named, read_json(path), f"{path} is damaged", advice)
            if before.outcomes == outcomes:
                return before
        named = Named(datetime.now(UTC).date().isoformat(), len(self.states), outcomes)
        write_json(path, asdict(named))
        return named

    def _filled(self, stage: Stage, text: str, folder: Path | None = None) -> str:
        """Put folders where a text has names in braces.

        Args:
            folder: of the study; by default its own.
        """
        folder = folder or self.folder
        given = {name: (folder / name).as_posix() for name in (other.name for other in self.study.stages)}
        given |= {HERE: (folder / stage.name).as_posix(), "parent": folder.as_posix()}
        for name in set(places(text)):
            text = text.replace(f"{{{name}}}", given[name])
        return text

    def _action(self, stage: Stage, key: str) -> tuple[Action, float]:
        """Return what is to be done with a stage, and the seconds that it has taken if it is continued."""
        state = self.states.get(stage.name)
        if state is None or state.key != key:
            return "run", 0.0
        if state.files is None:
            return ("run", 0.0) if stage.resume is None else ("continue", state.seconds)
        return "skip" if _sizes(self.folder / stage.name) == state.files else "run", 0.0

    def _save(self, stage: Stage, state: StageState) -> None:
        self.states[stage.name] = state
        write_json(self.folder / STATE_FILE, {name: asdict(state) for name, state in self.states.items()})

    def _run_all(self, waiting: list[StudyPlan], report: Report, crew: Crew, lock: int) -> None:
        """Run stages, each once those are finished whose folders it reads."""
        begun: list[tuple[StudyPlan, Running]] = []
        losses: Counter[str] = Counter()
        try:
            while waiting or begun:
                while len(begun) < crew.size() and (plan := _next(waiting, [plan for plan, _ in begun])):
                    waiting.remove(plan)
                    begun.append((plan, self._begin(plan, crew, lock)))
                for plan, running in list(begun):
                    try:
                        is_done = self._look_at(plan, running, report)
                    except LostError as lost:
                        losses[plan.stage.name] += 1
                        waiting.insert(0, self._again(plan, running, lost, losses[plan.stage.name]))
                        is_done = True
                    if is_done:
                        begun.remove((plan, running))
                if begun:
                    time.sleep(POLL_SECONDS)
        except BaseException as stop:
            for _, running in begun:
                running.send_signal(signal.SIGTERM if isinstance(stop, SystemExit) else signal.SIGINT)
            for plan, running in begun:
                self._note(plan, running, running.wait())
            raise

    def _begin(self, plan: StudyPlan, crew: Crew, lock: int) -> Running:
        """Start a stage; on this machine it shares the lock, and so keeps it if this process is killed."""
        stage, log = plan.stage, self._log(plan.stage)
        if plan.action == "run":
            shutil.rmtree(self.folder / stage.name, ignore_errors=True)
            log.unlink(missing_ok=True)
        self._save(stage, plan.state)
        words = [self._filled(stage, word) for word in command_words(stage.run)]
        if plan.action == "continue" and stage.resume:
            words.append(stage.resume)
        return crew.start(words, log, lock)

    def _look_at(self, plan: StudyPlan, running: Running, report: Report) -> bool:
        """Return whether a stage is finished, and note it down if it is."""
        stage, code = plan.stage, running.poll()
        if code is None:
            report(plan, "waiting" if running.begun is None else "running", _seconds(plan, running))
            return False
        has_left = self._note(plan, running, code)
        if code:
            raise UserError(
                f"the stage {stage.name} failed: {_last_line(self._log(stage))}; its output: {self._log(stage)}"
            )
        if not has_left:
            here = self.folder / stage.name
            raise UserError(f"the stage {stage.name} left nothing in {here}: its output option must name {{here}}")
        report(plan, "done", _seconds(plan, running))
        return True

    def _again(self, plan: StudyPlan, running: Running, lost: LostError, losses: int) -> StudyPlan:
        """Return the plan with which a lost stage goes on (UserError: it was lost too often)."""
        stage = plan.stage
        if losses > _MOST_LOSSES:
            raise UserError(f"the stage {stage.name} was lost {losses} times in a row: {lost}") from None
        print(f"{lost}: the stage {stage.name} is continued by another", file=sys.stderr, flush=True)
        self._note(plan, running, None)
        action, spent = self._action(stage, plan.state.key)
        return replace(plan, action=action, state=replace(plan.state, seconds=spent))

    def _note(self, plan: StudyPlan, running: Running, code: int | None) -> bool:
        """Write down how long a stage took, and what it left if it has ended well; return whether it left anything."""
        here = self.folder / plan.stage.name
        has_left = here.is_dir() and any(here.iterdir())
        files = _sizes(here) if code == 0 and has_left else None
        self._save(plan.stage, replace(plan.state, seconds=_seconds(plan, running), files=files))
        return has_left

    def _log(self, stage: Stage) -> Path:
        return self.folder / f"{stage.name}.log"


def _seconds(plan: StudyPlan, running: Running) -> float:
    """Return how long a stage has taken, with what it took before an interruption."""
    return plan.state.seconds + (0.0 if running.begun is None else time.monotonic() - running.begun)


def _next(waiting: Sequence[StudyPlan], begun: Sequence[StudyPlan]) -> StudyPlan | None:
    """Return the first stage that waits for no other."""
    unfinished = {plan.stage.name for plan in (*waiting, *begun)}
    return next((plan for plan in waiting if not plan.stage.needs(unfinished) - {plan.stage.name}), None)


@contextmanager
def _ends_by_sigterm() -> Iterator[None]:
    """Within its block SIGTERM raises SystemExit, so that what is begun is ended."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _only_call(folder: Path) -> Iterator[int]:
    """Lock a study's folder, and yield the descriptor of the lock, which lasts as long as a process has it open."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"a stage of the study in {folder} is still running, of another call or of one that was killed: "
                "wait for it, or end it"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)


def hashes(paths: Sequence[Path], start: Path) -> dict[str, str]:
    """Return the SHA-256 of files, and of all files in folders, by path.

    Raises:
        UserError: one does not exist.
    """
    sums: dict[str, str] = {}
    for path in paths:
        whole = start / path
        if not whole.exists():
            raise UserError(f"{path} does not exist, and a stage reads it")
        files = [file for file in visible(whole, "**/*") if file.is_file()] if whole.is_dir() else [whole]
        sums |= {(path / file.relative_to(whole)).as_posix(): sha256(file) for file in files}
    return sums


def _sizes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in visible(folder, "**/*") if path.is_file()
    }


def _last_line(log: Path) -> str:
    lines = [line for line in read_bytes(log).decode("utf-8", "replace").splitlines()[-_LAST_LINES:] if line.strip()]
    return one_line(lines[-1]) if lines else "it printed nothing"


_DONE = {"skip": "finished before", "run": "waiting", "continue": "waiting, interrupted before"}
_WILL = {"skip": "is finished", "run": "will run", "continue": "will continue"}
_LINE_EVERY = 30.0


def plan_lines(plans: Sequence[StudyPlan]) -> list[str]:
    """Say what will be done with each stage, and how long all of it may take on two cores."""
    lines = [
        f"{plan.stage.name}: {_WILL[plan.action]}" + (f", about {_minutes(plan.minutes)}" if plan.minutes else "")
        for plan in plans
    ]
    left = sum(plan.minutes for plan in plans)
    return [
        *lines,
        f"{plural(len(plans), 'stage')}, about {_minutes(left)} left on two cores" if left else "nothing to run",
    ]


@contextmanager
def overview(plans: Sequence[StudyPlan]) -> Iterator[Report]:
    """Show the stages while they are run."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        yield _lines()
        return
    states = {plan.stage.name: _DONE[plan.action] for plan in plans}
    with Live(_table(plans, states), console=console, refresh_per_second=2) as live:

        def report(plan: StudyPlan, state: str, seconds: float) -> None:
            states[plan.stage.name] = f"{state}, {_clock(seconds)}"
            live.update(_table(plans, states))

        yield report


def _lines() -> Report:
    """Return a report that prints a line when a stage begins and ends, and every half minute between."""
    next_line: dict[str, float] = {}

    def report(plan: StudyPlan, state: str, seconds: float) -> None:
        name = plan.stage.name
        if state != "done" and seconds < next_line.get(name, 0.0):
            return
        next_line[name] = seconds + _LINE_EVERY
        print(f"{name}: {state}, {_clock(seconds)} of about {_minutes(plan.stage.minutes)}", flush=True)

    return report


def _table(plans: Sequence[StudyPlan], states: dict[str, str]) -> "Table":
    from rich.table import Table

    table = Table("stage", "state", "estimate")
    for plan in plans:
        table.add_row(plan.stage.name, states[plan.stage.name], _minutes(plan.stage.minutes))
    return table


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _minutes(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes >= 1.5 else plural(max(1, round(60 * minutes)), "second")
