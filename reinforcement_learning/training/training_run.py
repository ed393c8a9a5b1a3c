"""One training run, from its settings to its policy, and what the terminal shows of it meanwhile.

Invalid settings are refused before anything is written.
"""

import time
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

import agent_zoo
from agent_zoo.checkpoint import copy_checkpoint, versions
from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.data_parallel import Processes, join_processes, leaders_text, pick_device
from common.files import make_folder
from common.progress_view import Clock, ProgressLines, counted_progress
from common.user_error import UserError
from common.weights_and_biases import MirroredRun, can_mirror
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.task_encoder import pin_embeddings, pin_language_model
from reinforcement_learning.game.tasks import check_tasks, offered_tasks
from reinforcement_learning.game.vectorization import connect_workers
from reinforcement_learning.processes import StopSignal, keep_freed_memory, share_of_work
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.run_folder import TrainingFolder, TrainingState, make_run_folder
from reinforcement_learning.training.trainer import Metrics, Session, train

COLLAPSED = 1.5
"""A codebook with a lower perplexity tells states apart no more."""

_MIRRORED_RUN = "wandb_id.txt"
_STILL = "training continues, see metrics.jsonl"


def train_policy(
    name: str, agent: str, settings: Settings, policies_dir: Path, runs_dir: Path, resume: Path | None, track: bool
) -> None:
    """Train, save the policy, and print where it is; ends the process if training was stopped.

    Args:
        runs_dir: parent folder of the run's folder.
        resume: folder of a run to resume; None starts a new one.
        track: whether to mirror the metrics to Weights & Biases.

    Raises:
        UserError: the tasks, the device, the account or a folder cannot be used.
    """
    check_tasks(settings.task, settings.env)
    settings = replace(settings, task=pin_embeddings(pin_language_model(settings.task)))
    device = pick_device(settings.train.device)
    agent_zoo.policy_class(agent, settings.policy.network)
    agent_zoo.check_cell(agent, settings.policy.cell)
    keep_freed_memory()
    processes = join_processes(device)  # one, unless torchrun started several
    name = leaders_text(name, processes)
    track = track and processes.leads and can_mirror(settings.wandb.mode, _STILL)
    if processes.size > 1 and settings.task.syllabus != "none":
        raise UserError("--syllabus learns from the lives of one process: start it without torchrun")
    if processes.size > 1 and settings.train.has_opponents:
        raise UserError("train.pool_kernel: opponents need a run of one process: start it without torchrun")
    connect_workers(share_of_work(settings).rollout)
    with counted_progress("reading tasks with the language model", "tasks") as progress:
        offered_tasks(settings.task, settings.env, progress)
    for needed in (policies_dir, runs_dir, settings.env.maps_dir):
        make_folder(needed)
    if processes.leads and not resume:
        make_run_folder(runs_dir / name)
    folder = TrainingFolder(resume or runs_dir / name, hold=processes.leads)
    state = TrainingState.load(folder.state_path) if resume and folder.state_path.exists() else None
    if processes.leads:
        folder.keep_metrics(state.updates if state else 0)
        folder.write_settings(agent, settings, versions(), policies_dir)
    try:
        _train(name, agent, settings, folder, state, processes, policies_dir / f"{name}{SUFFIX}", not resume, track)
    except BaseException:
        if processes.leads and not resume and folder.untouched:  # the same name must then work
            folder.withdraw()
        raise


def _train(
    name: str, agent: str, settings: Settings, folder: TrainingFolder, state: TrainingState | None,
    processes: Processes, policy_path: Path, new: bool, track: bool,
) -> None:  # fmt: skip
    with counted_progress("generating maps", "maps") as progress:
        maps = ensure_maps(settings.env, progress)
    own = share_of_work(settings)
    wanted = settings.wandb
    mirror = MirroredRun(
        wanted.mode if track else None, folder.folder, folder.folder / _MIRRORED_RUN, still=_STILL,
        project=wanted.project, entity=wanted.entity, group=wanted.group, name=name,
        config={"agent": agent, **asdict(settings)},
    )  # fmt: skip
    with StopSignal() as stop, TrainingDisplay(settings.train.total_agent_steps) as view:

        def show(metrics: Metrics) -> None:
            mirror.log(metrics, step=int(metrics["agent_steps"]))
            view.show_update(metrics)

        checkpoint = train(name, agent, own, maps, Session(folder, stop, show, view.advance, processes), state)
        never_begun = bool(stop) and new and folder.untouched
        if not never_begun:
            mirror.keep(checkpoint, name, "policy")
        mirror.finish()
    if never_begun:
        print("stopped before the first update: nothing is kept")
    else:
        if processes.leads:
            copy_checkpoint(checkpoint, policy_path)
        print(f"{'stopped early; the' if stop else 'trained'} policy: {policy_path}")
        print(f"metrics and checkpoints: {folder.folder}")
        if settings.semantic.codes:
            print(codes_in_use(settings.semantic.codes, view.metrics))
    processes.leave()
    stop.end_process()


def codes_in_use(codes: int, metrics: dict[str, float]) -> str:
    """Say how many codes of a codebook the states of the last update had, and whether it has collapsed."""
    if "semantic/perplexity" not in metrics:
        return f"codes: {codes}, in use unknown: no update was made"
    used = metrics["semantic/perplexity"]
    if metrics["semantic/weight"] == 0:
        now = metrics["semantic/mean_return"]  # which decides the next weight, not that of the last update
        why = f"mean return {now:.2f} is not above 0" if now <= 0 else f"mean return was not above 0, is {now:.2g} now"
        return f"codes: their losses had no weight in the last update ({why}: see --semantic.return-reference)"
    text = f"codes: {used:.1f} of {codes} in use (perplexity)"
    if used < COLLAPSED:
        return f"{text}: the codebook has collapsed, almost all states share a code"
    return text


PHASES = ("environment", "inference", "learning", "copying")
MOST_ON_PANEL = 6
MOST_ON_LINE = 3
_LOSSES = ("policy", "value", "entropy", "approximate_kl", "clip_fraction", "explained_variance")


def update_line(metrics: Metrics) -> str:
    """Summarise an update in one line."""
    parts = [
        f"{metrics['agent_steps']:>11,.0f} agent-steps",
        f"{metrics['agent_steps_per_second']:,.0f}/s ({_time(metrics)})",
        *(f"{name} {metrics[f'loss/{name}']:.4g}" for name in ("policy", "value", "entropy")),
    ]
    if "lives/ticks" in metrics:
        parts.append(f"life {metrics['lives/ticks']:.1f} ticks, task {metrics['lives/task_progress']:.3f}")
        parts.append(f"died: {_largest(metrics, 'death/', MOST_ON_LINE)}")
        parts.append(f"a life: {_largest(metrics, 'events/', MOST_ON_LINE)}")
    else:
        parts.append("no life ended")
    if "semantic/perplexity" in metrics:
        parts.append(f"codes in use {metrics['semantic/perplexity']:.1f}, weight {metrics['semantic/weight']:.2f}")
    return "  ".join(parts)


def _rows(metrics: Metrics) -> list[tuple[str, str]]:
    """Return the lines of the panel: what each is about, and its numbers."""
    if not metrics:
        return [("speed", "known after the first update")]
    lives = "none ended yet"
    if "lives/ticks" in metrics:
        lives = (
            f"{metrics['lives/ended']:.0f} ended after {metrics['lives/ticks']:.1f} ticks "
            f"(median {metrics['lives/ticks_median']:.0f}), reward {metrics['lives/total_reward']:.3f}, "
            f"task progress {metrics['lives/task_progress']:.3f}, completed {metrics['lives/task_completed']:.0%}"
        )
    rows = [
        ("speed", f"{metrics['agent_steps_per_second']:,.0f} agent-steps/s: {_time(metrics)}"),
        ("losses", ", ".join(f"{_words(name)} {metrics[f'loss/{name}']:.4g}" for name in _LOSSES)),
        ("lives", lives),
        ("deaths", _largest(metrics, "death/", MOST_ON_PANEL)),
        ("events a life", _largest(metrics, "events/", MOST_ON_PANEL)),
    ]
    if "semantic/perplexity" in metrics:
        used, weight = f"{metrics['semantic/perplexity']:.1f} in use", f"{metrics['semantic/weight']:.2f}"
        restarted = f"{metrics['semantic/restarted_codes']:.0f} restarted"
        rows.append(("codes", f"{used}, {restarted}, weight of their losses {weight}"))
    return rows


def _time(metrics: Metrics) -> str:
    return ", ".join(f"{phase} {metrics.get(f'time/{phase}', 0):.0%}" for phase in PHASES)


def _largest(metrics: Metrics, prefix: str, most: int) -> str:
    """Name the largest shares of deaths, or numbers of events a life."""
    entries = [(_words(key.removeprefix(prefix)), value) for key, value in metrics.items() if key.startswith(prefix)]
    largest = sorted((entry for entry in entries if entry[1]), key=lambda entry: -entry[1])[:most]
    if prefix == "death/":
        shown = [f"{cause} {share:.0%}" for cause, share in largest]
    else:
        shown = [f"{event.lower()} {count:.2g}" for event, count in largest]
    return ", ".join(shown) or ("none" if metrics.get("lives/ended") else "none ended yet")


def _words(name: str) -> str:
    return name.replace("_", " ").replace("npc", "NPC").replace(" kl", " KL")


class TrainingDisplay:
    """A live panel on a terminal; elsewhere one line per update, and one every half minute between updates.

    Enter it only once there is something to show: on a terminal the panel appears at once and remains at the end.
    """

    def __init__(self, total_agent_steps: int, console: Console | None = None, clock: Clock = time.monotonic):
        self.console = console or Console()
        self.clock = clock
        self.total = total_agent_steps
        self.agent_steps = 0
        self.metrics: Metrics = {}
        self._first_steps: int | None = None  # a resumed run does not start at 0
        self._start = clock()
        self._lines = ProgressLines("training", "agent-steps", self._print, clock)
        self._live = Live(console=self.console, get_renderable=self._panel, refresh_per_second=4)

    def __enter__(self) -> "TrainingDisplay":
        self._start = self.clock()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def advance(self, agent_steps: int) -> None:
        """Take the agent-steps so far."""
        if self._first_steps is None:
            self._first_steps, self._start = agent_steps, self.clock()
        self.agent_steps = agent_steps
        if not self.console.is_terminal:
            self._lines.report(agent_steps, self.total)

    def show_update(self, metrics: Metrics) -> None:
        """Take the metrics of an update."""
        self.metrics = metrics
        if not self.console.is_terminal:
            self._print(update_line(metrics))

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _panel(self) -> Panel:
        seconds = self.clock() - self._start
        done, left = self.agent_steps - (self._first_steps or 0), "-:--:--"
        if done:
            left = str(timedelta(seconds=round(seconds / done * max(self.total - self.agent_steps, 0))))
        reached = Table.grid(padding=(0, 2, 0, 0), expand=True)
        reached.add_column(no_wrap=True)
        reached.add_column(ratio=1)
        reached.add_column(no_wrap=True)
        reached.add_row(
            f"{self.agent_steps:,} of {self.total:,} agent-steps",
            ProgressBar(total=self.total, completed=self.agent_steps),
            f"{timedelta(seconds=round(seconds))} so far, {left} left",
        )
        numbers = Table.grid(padding=(0, 2, 0, 0))
        numbers.add_column(style="bold cyan", no_wrap=True)
        numbers.add_column()
        for name, text in _rows(self.metrics):
            numbers.add_row(name, text)
        update = f"update {self.metrics['update']:,.0f}" if self.metrics else "first update"
        return Panel(Group(reached, numbers), title=f"training: {update}")
