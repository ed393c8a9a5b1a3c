"""One training run, from its settings to its policy; invalid settings are refused before anything is written."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import agent_zoo
from agent_zoo.checkpoint import copy_checkpoint, versions
from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.data_parallel import Processes, join_processes, leaders_text, pick_device
from common.files import make_folder
from common.progress_view import counted_progress
from common.user_error import UserError
from common.weights_and_biases import MirroredRun, can_mirror
from reinforcement_learning.game.maps import ensure_maps
from reinforcement_learning.game.task_encoder import pin_embeddings, pin_language_model
from reinforcement_learning.game.tasks import check_tasks, offered_tasks
from reinforcement_learning.game.vectorization import connect_workers
from reinforcement_learning.processes import StopSignal, keep_freed_memory
from reinforcement_learning.settings import Settings
from reinforcement_learning.training.local_processes import share_of_work
from reinforcement_learning.training.run_folder import TrainingFolder, make_run_folder
from reinforcement_learning.training.terminal import TrainingDisplay
from reinforcement_learning.training.trainer import Metrics, Session, train
from reinforcement_learning.training.training_state import TrainingState

COLLAPSED = 1.5
"""A codebook with a lower perplexity tells states apart no more."""

_MIRRORED_RUN = "wandb_id.txt"
_STILL = "training continues, see metrics.jsonl"


@dataclass(frozen=True)
class TrainingRun:
    """What to train, and where to write it."""

    name: str  # of the policy and of the run
    agent: str  # folder in agent_zoo/
    settings: Settings
    policies_dir: Path  # folder for the policy
    runs_dir: Path  # parent folder of the run's folder
    resume: Path | None  # folder of a run to resume; None starts a new one
    track: bool  # whether to mirror the metrics to Weights & Biases


def train_policy(run: TrainingRun) -> None:
    """Train, save the policy, and print where it is; ends the process if training was stopped.

    Raises:
        UserError: the tasks, the device, the account or a folder cannot be used.
    """
    check_tasks(run.settings.task, run.settings.env)
    run = replace(run, settings=replace(run.settings, task=pin_embeddings(pin_language_model(run.settings.task))))
    device = pick_device(run.settings.train.device)
    agent_zoo.policy_class(run.agent, run.settings.policy.network)
    agent_zoo.check_cell(run.agent, run.settings.policy.cell)
    keep_freed_memory()
    processes = join_processes(device)  # one, unless torchrun started several
    run = replace(run, name=leaders_text(run.name, processes), track=run.track and processes.leads)
    run = replace(run, track=run.track and can_mirror(run.settings.wandb.mode, _STILL))
    _check_services(run, processes)
    folder, state = _open_folder(run, processes)
    with _withdrawn_if_never_begun(folder, processes.leads and not run.resume):
        _train(run, folder, state, processes)


def _train(run: TrainingRun, folder: TrainingFolder, state: TrainingState | None, processes: Processes) -> None:
    settings = run.settings
    with counted_progress("generating maps", "maps") as progress:
        maps = ensure_maps(settings.env, progress)
    own = share_of_work(settings)
    wanted = settings.wandb
    mirror = MirroredRun(
        wanted.mode if run.track else None, folder.folder, folder.folder / _MIRRORED_RUN, still=_STILL,
        project=wanted.project, entity=wanted.entity, group=wanted.group, name=run.name,
        config={"agent": run.agent, **asdict(settings)},
    )  # fmt: skip
    with StopSignal() as stop, TrainingDisplay(settings.train.total_agent_steps) as view:

        def show(metrics: Metrics) -> None:
            mirror.log(metrics, step=int(metrics["agent_steps"]))
            view.show_update(metrics)

        checkpoint = train(run.name, run.agent, own, maps, Session(folder, stop, show, view.advance, processes), state)
        never_begun = bool(stop) and not run.resume and folder.untouched
        if not never_begun:
            mirror.keep(checkpoint, run.name, "policy")
        mirror.finish()
    if never_begun:
        print("stopped before the first update: nothing is kept")
    else:
        policy_path = run.policies_dir / f"{run.name}{SUFFIX}"
        if processes.leads:
            copy_checkpoint(checkpoint, policy_path)
        print(f"{'stopped early; the' if stop else 'trained'} policy: {policy_path}")
        print(f"metrics and checkpoints: {folder.folder}")
        if settings.semantic.codes:
            print(codes_in_use(settings.semantic.codes, view.metrics))
    processes.leave()
    stop.end_process()


@contextmanager
def _withdrawn_if_never_begun(folder: TrainingFolder, new: bool) -> Iterator[None]:
    """Leave nothing of a new run that ends before its first update: the same name must then work."""
    try:
        yield
    except BaseException:
        if new and folder.untouched:
            folder.withdraw()
        raise


def codes_in_use(codes: int, metrics: dict[str, float]) -> str:
    """Say how many codes of a codebook the states of the last update had, and whether it has collapsed."""
    if "semantic/perplexity" not in metrics:
        return f"codes: {codes}, in use unknown: no update was made"
    used = metrics["semantic/perplexity"]
    if metrics["semantic/weight"] == 0:
        why = f"mean return {metrics['semantic/mean_return']:.2f} is not above 0: see --semantic.return-reference"
        return f"codes: their losses had no weight in the last update ({why})"
    text = f"codes: {used:.1f} of {codes} in use (perplexity)"
    if used < COLLAPSED:
        return f"{text}: the codebook has collapsed, almost all states share a code"
    return text


def _check_services(run: TrainingRun, processes: Processes) -> None:
    if processes.size > 1 and run.settings.task.syllabus != "none":
        raise UserError("--syllabus learns from the lives of one process: start it without torchrun")
    if processes.size > 1 and run.settings.train.has_opponents:
        raise UserError("train.pool_kernel: opponents need a run of one process: start it without torchrun")
    connect_workers(share_of_work(run.settings).rollout)
    with counted_progress("reading tasks with the language model", "tasks") as progress:
        offered_tasks(run.settings.task, run.settings.env, progress)


def _open_folder(run: TrainingRun, processes: Processes) -> tuple[TrainingFolder, TrainingState | None]:
    for folder in (run.policies_dir, run.runs_dir, run.settings.env.maps_dir):
        make_folder(folder)
    path = run.resume or run.runs_dir / run.name
    if processes.leads and not run.resume:
        make_run_folder(path)
    opened = TrainingFolder(path, hold=processes.leads)
    state = TrainingState.load(opened.state_path) if run.resume and opened.state_path.exists() else None
    if processes.leads:
        opened.keep_metrics(state.updates if state else 0)
        opened.write_settings(run.agent, run.settings, versions(), run.policies_dir)
    return opened, state
