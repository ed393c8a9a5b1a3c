"""Mirror the local metrics to Weights & Biases."""

from dataclasses import asdict
from pathlib import Path

from common import weights_and_biases
from common.weights_and_biases import MirroredRun
from reinforcement_learning.settings import Settings, WandbSettings
from reinforcement_learning.training.run_folder import RunFolder

_ID_FILE = "wandb_id.txt"


_STILL = "training continues, see metrics.jsonl"


def check_login(settings: WandbSettings) -> None:
    """Refuse online logging without a login, before anything is written."""
    weights_and_biases.check_login(settings.mode)


def can_mirror(settings: WandbSettings) -> bool:
    """Return whether metrics can be mirrored; a line says so if nobody is logged in.

    Raises:
        UserError: the service cannot be reached.
    """
    return weights_and_biases.can_mirror(settings.mode, _STILL)


class NoTracker:
    """Does not mirror metrics."""

    def log(self, metrics: dict[str, float]) -> None:
        """Ignore one update's metrics."""

    def finish(self, policy: Path) -> None:
        """Do nothing."""


class WandbTracker:
    """Sends each update's metrics to Weights & Biases, or to files for `wandb sync` in offline mode."""

    def __init__(self, name: str, agent: str, settings: Settings, run: RunFolder):
        """Start a run, or go on with that of a run that is resumed.

        Raises:
            UserError: the service cannot be reached or refuses.
        """
        wanted = settings.wandb
        self._name = name
        self._run = MirroredRun(
            wanted.mode, run.folder, run.folder / _ID_FILE,
            project=wanted.project, entity=wanted.entity, group=wanted.group, name=name,
            config={"agent": agent, **asdict(settings)}, still=_STILL,
        )  # fmt: skip

    def log(self, metrics: dict[str, float]) -> None:
        """Mirror one update's metrics against agent-steps."""
        self._run.log(metrics, step=int(metrics["agent_steps"]))

    def finish(self, policy: Path) -> None:
        """Keep the policy as an artifact, flush and close."""
        self._run.keep(policy, self._name, "policy")
        self._run.finish()


Tracker = NoTracker | WandbTracker
