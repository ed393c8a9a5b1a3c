"""The settings of one run of probes: every option of train_probes.py, and what each may be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from activation_store.selection import Subsample
from analysis.probes.inputs import Input, inputs_named
from analysis.runs.record_limit import FEWEST_KEPT
from common.argument_checks import at_least, check, result_name, seed_value, split
from common.ray_cluster import RAY_ADDRESSES, is_ray_address
from common.result_places import OutputFolder
from common.user_error import UserError

LONGEST_HISTORY = 32
FEWEST_RESAMPLES = 100
RECORD_BYTES = 10_000
"""Memory that a record takes with both kinds of probe, where inputs are layers of networks."""
SEEN_BYTES, OBSERVATION_BYTES = 12_000, 2_000
"""Further memory where an input is made of observations, and for each observation of the longest."""


@dataclass(frozen=True)
class ProbeSettings:
    """Arguments of train_probes.py."""

    dumps: tyro.conf.Positional[tuple[Path, ...]]
    """Dumps of different policies, or of one policy's checkpoints: folders written by extract_activations.py."""
    targets: str = "default"
    """Comma-separated targets to predict: default (49), hidden (7 that are not behavioural features), extended (these
    and all features), future (26: what the agent does next), action (17: what it chose in this tick), or names listed
    in docs/probes.md."""
    inputs: str = "all"
    """Comma-separated inputs to predict them from: lstm_hidden, lstm_cell, semantic_plane, semantic_code,
    action_decoder, encoder_output, observation, history, traces, reservoir, untrained; or all of these that the dump
    has. Also memories of checkpoints that watched, such as steps_750000_lstm_cell."""
    probes: Literal["linear", "both"] = "both"
    """linear: ridge regression, or logistic regression for binary targets; both: also one-hidden-layer networks."""
    history: str = "4"
    """Comma-separated numbers of observations, including the current one, 2 to 32 each: one input `history_N` for each.
    Several, such as 4,8,16,32, also draw the scores as a curve."""
    subsample: int = 1
    """Keep every N-th record of each life, at least 1 (all), starting at a random one. Fewer records favour small
    inputs over large ones."""
    max_records: int = 115_000
    """About how many records to keep at most, at least 1000, up to 30 kB of memory each. Where
    --subsample would keep more, fewer of each life are kept. The largest dump decides for all."""
    skip_first: int = 0
    """Number of ticks to skip at the start of each life, at least 0."""
    emergence: bool = False
    """Plot scores and advantages against agent-steps of training; requires at least two checkpoints."""
    given: str = ""
    """Comma-separated targets that are taken as known, such as tick or action (what the agent chose in this tick): also
    report what the memory adds to baselines that know them too, and split each R2 into the parts explained by these
    targets only, by the memory only, and by both. `--targets self_food --given tick` asks whether a memory holds more
    of hunger than that it grows with time."""
    ray_address: str | None = None
    """Fit probes side by side on a Ray cluster, with one core each: local, auto or HOST:PORT, as in
    extract_activations.py. By default one after the other on this machine, with all its cores."""
    resamples: int = 2000
    """Number of bootstrap resamples of worlds for the intervals, at least 100."""
    seed: int = 0
    """Seed of the control tasks, networks and resamples, 0 to 4294967295."""
    name: str | None = None
    """Name of the run's folder; by default that of the first dump followed by -probes."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        return self.output_dir / (self.name or f"{self.dumps[0].resolve().name}-probes")

    @property
    def thinning(self) -> Subsample:
        """Which records of each life to keep."""
        return Subsample(self.subsample, self.skip_first, self.seed)

    @property
    def histories(self) -> tuple[int, ...]:
        """Numbers of observations, each once, from small to large.

        Raises:
            UserError: one is not a number, or out of range.
        """
        numbers = split(self.history)
        for number in numbers:
            if not (number.isascii() and number.isdigit() and 2 <= int(number[:4]) <= LONGEST_HISTORY):
                raise UserError(f"--history is {self.history}: must be 2 to {LONGEST_HISTORY}, or several such as 4,16")
        if not numbers:
            raise UserError(f"--history is empty: give one or more numbers from 2 to {LONGEST_HISTORY}")
        return tuple(sorted({int(number) for number in numbers}))

    @property
    def requested(self) -> tuple[Input, ...]:
        """The inputs asked for, whether or not a dump holds them; `UserError` as `histories` and `inputs_named`."""
        return inputs_named(split(self.inputs), self.histories)

    def check(self) -> None:
        """Refuse values that no dump could make sense of.

        Raises:
            UserError: names the option, and what is allowed.
        """
        check(
            self, name=result_name(self.name), subsample=at_least(self.subsample, 1),
            max_records=at_least(self.max_records, FEWEST_KEPT), skip_first=at_least(self.skip_first, 0),
            resamples=at_least(self.resamples, FEWEST_RESAMPLES), seed=seed_value(self.seed),
        )  # fmt: skip
        _ = self.histories
        if self.ray_address is not None and not is_ray_address(self.ray_address):
            raise UserError(f"--ray-address is {self.ray_address}: must be {RAY_ADDRESSES}")
        names = [folder.resolve().name for folder in self.dumps]
        if not names:
            raise UserError("no dump is named: give one or more folders written by extract_activations.py")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UserError(
                f"two dumps are called {twice[0]}: their results would be indistinguishable; rename one of the folders"
            )
