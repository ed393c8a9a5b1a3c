"""The settings of the training of a world model: every option of train_world_model.py."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from argument_checks import at_least, between, check, seed_value
from representation.tracking import Wandb

LONGEST_HORIZON = 64
SETTINGS_FILE = "settings.json"
MODEL_FILE = "model.safetensors"

_NOT_RESULTS = ("resume", "output_dir", "policies_dir", "name", "track", "wandb", "dump")
"""Options that do not change the weights; the dump's hash does."""


@dataclass(frozen=True)
class WorldSettings:
    """Arguments of train_world_model.py."""

    dump: tyro.conf.Positional[Path]
    """Dump of the policy: a folder written by extract_activations.py with --format parquet, at least the layers
    lstm_hidden and lstm_cell, and --fields Market,Task,ActionTargets; episodes on at least two maps."""
    records: int = 1_000_000
    """Records (agent-ticks) to predict in training, at least 1. Beyond those of the training maps, they repeat."""
    horizon: int = 16
    """Ticks predicted in a training window, 1 to 64; windows of lives that end earlier are shorter."""
    batch: int = 16
    """Windows in a batch, at least 2."""
    bottleneck: Literal["sphere", "gaussian"] = "sphere"
    """sphere: three ticks are squeezed to a vector of length 1, and vectors are spread over the sphere; gaussian: to a
    normal distribution, whose divergence from the standard one is reported."""
    hidden: int = 224
    """Units of the world's deterministic state, at least 8."""
    learning_rate: float = 1e-3
    """Of Adam; rises over the first 2% of the records and falls to zero over the last half."""
    seed: int = 0
    """Seed of the weights, of the maps held out and of the order of windows, 0 to 4294967295."""
    resume: bool = False
    """Continue an interrupted training with the same arguments; the result is the same as without the interruption."""
    policies_dir: Path = Path("policies")
    """Folder of the policy that was recorded."""
    name: str | None = None
    """Name of the model's folder; by default that of the dump."""
    output_dir: Path = Path("world_models")
    """Parent folder of the model's folder."""
    track: bool = True
    """Mirror the training curves to Weights & Biases; --no-track for local files only."""
    wandb: Wandb = field(default_factory=Wandb)

    @property
    def folder(self) -> Path:
        """The model's folder."""
        return self.output_dir / (self.name or self.dump.resolve().name)

    @property
    def tracking(self) -> Wandb | None:
        """Where training curves are mirrored to; None for nowhere."""
        return self.wandb if self.track else None

    def check(self) -> None:
        """Refuse values that no dump could make sense of.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(
            self,
            records=at_least(self.records, 1),
            horizon=between(self.horizon, 1, LONGEST_HORIZON),
            batch=at_least(self.batch, 2),
            hidden=at_least(self.hidden, 8),
            learning_rate=between(self.learning_rate, 1e-6, 1e-1),
            seed=seed_value(self.seed),
        )

    def plain(self) -> dict[str, Any]:
        """Return all options as they would be written to JSON."""
        return {name: str(each) if isinstance(each, Path) else each for name, each in asdict(self).items()}

    def deciding(self) -> dict[str, Any]:
        """Return the options that decide the weights."""
        return {name: each for name, each in self.plain().items() if name not in _NOT_RESULTS}
