"""The settings of one run of probes: every option of train_probes.py, and what each may be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from activation_store.subsample import Subsample
from argument_checks import at_least, between, check, seed_value, split
from user_error import UserError

LONGEST_HISTORY = 32
FEWEST_RESAMPLES = 100


@dataclass(frozen=True)
class ProbeSettings:
    """Arguments of train_probes.py."""

    dumps: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that extract_activations.py wrote: policies, or checkpoints of one."""
    targets: str = "default"
    """What to predict, with commas: default (49), hidden (7 that no registry feature is), extended (all), or names."""
    inputs: str = "all"
    """What to predict it from, with commas: lstm_hidden, lstm_cell, action_decoder, encoder_output, observation,
    history, untrained; all takes what the dump holds."""
    probes: Literal["linear", "both"] = "both"
    """linear: ridge regressions, and logistic ones of yes-or-no targets; both: networks with a hidden layer too."""
    history: int = 4
    """Observations in the input `history`, the present one among them, 2 to 32."""
    subsample: int = 1
    """Keep one record in this many of each life, from 1 (all). The first one kept is drawn at random for each life.
    Fewer records favour small inputs over large ones."""
    skip_first: int = 0
    """Leave out this many ticks at the start of each life, from 0."""
    emergence: bool = False
    """Draw scores and advantages against the agent-steps trained; needs two checkpoints or more."""
    given: str = ""
    """Names of targets, with commas: also split each R2 into what these tell, what only the memory tells, and both."""
    resamples: int = 2000
    """Of the worlds, for intervals, from 100."""
    seed: int = 0
    """Of the control tasks, the networks and the resamples, 0 to 4294967295."""
    name: str | None = None
    """Of the run's folder; by default the first dump's, with -probes."""
    output_dir: Path = Path("analysis_results")
    """Folder that the run's own folder is made in."""

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        return self.output_dir / (self.name or f"{self.dumps[0].resolve().name}-probes")

    @property
    def thinning(self) -> Subsample:
        """Which records of each life to keep."""
        return Subsample(self.subsample, self.skip_first, self.seed)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that are asked for."""
        return split(self.inputs)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The targets, or sets of them, that are asked for."""
        return split(self.targets)

    @property
    def given_names(self) -> tuple[str, ...]:
        """The targets that are to be held against the memory."""
        return split(self.given)

    def check(self) -> None:
        """Refuse values that no dump could make sense of.

        Raises:
            UserError: names the option, and what is allowed.
        """
        check(
            self,
            history=between(self.history, 2, LONGEST_HISTORY),
            subsample=at_least(self.subsample, 1),
            skip_first=at_least(self.skip_first, 0),
            resamples=at_least(self.resamples, FEWEST_RESAMPLES),
            seed=seed_value(self.seed),
        )
        names = [folder.resolve().name for folder in self.dumps]
        if not names:
            raise UserError("no dump is named: give the folders that extract_activations.py wrote")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UserError(
                f"two dumps are called {twice[0]}: results could not be told apart; rename one of the folders"
            )
