"""The settings of one run of sparse autoencoders: every option of train_sparse_autoencoder.py."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import tyro

from activation_store.layers import check_layers
from activation_store.sparse_dictionary import AUTOENCODERS, DictionaryKind
from analysis.runs.record_limit import FEWEST_KEPT
from common.argument_checks import SEEDS, at_least, between, check, did_you_mean, result_name, split
from common.result_places import OutputFolder
from common.user_error import UserError
from common.weights_and_biases import Wandb

MOST_FEATURES = 1 << 20
_WIDTH = re.compile(r"\d{1,7}x?")


def features_of(width: str, units: int) -> int:
    """Return the number of features that a width, such as 2048 or 8x, means for a layer of this many units."""
    number = int(width.removesuffix("x"))
    return number * units if width.endswith("x") else number


BYTES_A_RECORD = 8_000
"""Memory for each record of the training and test episodes: states, behaviours, features that are active."""


@dataclass(frozen=True)
class SparseSettings:
    """Arguments of train_sparse_autoencoder.py."""

    dump: tyro.conf.Positional[Path]
    """Dump of the policy: a folder written by extract_activations.py, with at least 2 episodes."""
    layer: str = "lstm_cell"
    """Layer whose states are written as sparse features, such as lstm_cell, lstm_hidden or encoder_output."""
    width: str = "8x"
    """Comma-separated numbers of features: 2048, or 8x for eight times the layer's units."""
    k: str = "32"
    """Comma-separated numbers of features that a state may have, at least 1; for batch_topk, jumprelu and matryoshka on
    average."""
    kind: str = "topk"
    """Comma-separated kinds of autoencoder: topk, batch_topk, jumprelu, matryoshka."""
    seeds: int = 2
    """Autoencoders of each kind, width and k, which differ in their seeds, at least 1. The first is reported; the
    others say how many of its features are found again."""
    epochs: int = 10
    """Passes over the training states, at least 1."""
    max_records: int = 500_000
    """Maximum number of records to use, at least 1000, about 8 kB of memory each: of larger dumps, whole episodes are
    left out, drawn at random."""
    untrained: bool = False
    """Also fit everything to the memory of the untrained network that --record standard recorded beside the policy."""
    splice: bool = True
    """Also let the policy act on reconstructed states, and compare its actions and values. Needs a dump of
    --record standard, and the policy in --policies-dir."""
    meaning: bool = True
    """Also describe what each feature goes with, and write the page sparse_features.html."""
    feature_set: str = "extended"
    """Comma-separated behavioural features to describe sparse features with: default, extended, or names listed in
    docs/features.md."""
    erase: str = ""
    """Comma-separated behavioural features, such as self_food: compare what LEACE, nulling a linear read-out and
    removing sparse features leave readable of each, and how much each changes the actions. Needs --meaning."""
    seed: int = 0
    """Seed of the first autoencoder and of the resamples, 0 to 4294967295."""
    resume: bool = False
    """Continue an interrupted run with the same arguments; the result is the same as without the interruption."""
    policies_dir: Path = Path("policies")
    """Folder of trained policies, for --splice."""
    name: str | None = None
    """Name of the run's folder; by default that of the dump followed by -sparse."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""
    track: bool = True
    """Mirror the training curves to Weights & Biases; --no-track for local files only."""
    wandb: Wandb = field(default_factory=Wandb)

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        return self.output_dir / (self.name or f"{self.dump.resolve().name}-sparse")

    @property
    def tracking(self) -> Wandb | None:
        """Where training curves are mirrored to; None for nowhere."""
        return self.wandb if self.track else None

    @property
    def training_folder(self) -> Path:
        """Where trained parts wait until the run is complete."""
        return self.output_dir / f".{self.run_folder.name}.unfinished"

    @property
    def kinds(self) -> tuple[DictionaryKind, ...]:
        """The kinds of autoencoder.

        Raises:
            UserError: there is none of that name, or one is named twice.
        """
        names = _distinct("kind", self.kind)
        for name in names:
            if name not in AUTOENCODERS:
                hint = did_you_mean(name, AUTOENCODERS)
                raise UserError(f"--kind is {self.kind}: must be {', '.join(AUTOENCODERS)}, or several{hint}")
        return tuple(kind for name in names for kind in get_args(DictionaryKind) if kind == name)

    @property
    def widths(self) -> tuple[str, ...]:
        """The numbers of features, such as 8x or 2048.

        Raises:
            UserError: one is neither a number nor a multiple.
        """
        widths = _distinct("width", self.width)
        if not all(_WIDTH.fullmatch(width) and features_of(width, 1) for width in widths):
            raise UserError(
                f"--width is {self.width}: must be numbers of features, such as 2048, or multiples of the units, "
                "such as 8x"
            )
        return widths

    @property
    def sparsities(self) -> tuple[int, ...]:
        """The values of k.

        Raises:
            UserError: one is not a number, or below 1.
        """
        numbers = _distinct("k", self.k)
        if not all(
            number.isascii() and number.isdigit() and int(number[:7]) > 0 and len(number) < 8 for number in numbers
        ):
            raise UserError(f"--k is {self.k}: must be numbers from 1, such as 32 or 16,32")
        return tuple(map(int, numbers))

    def check(self) -> None:
        """Refuse values that no dump could make sense of.

        Raises:
            UserError: names the option, and the allowed values.
        """
        check(
            self, name=result_name(self.name), seeds=at_least(self.seeds, 1), epochs=at_least(self.epochs, 1),
            max_records=at_least(self.max_records, FEWEST_KEPT), seed=between(self.seed, 0, SEEDS - self.seeds),
        )  # fmt: skip
        check_layers([self.layer])
        if self.erase and not self.meaning:
            raise UserError("--erase needs the behaviours that --no-meaning leaves out: give only one of the two")
        _ = self.kinds, self.widths, self.sparsities

    def check_units(self, units: int) -> None:
        """Refuse widths and k that do not fit a layer.

        Raises:
            UserError: k is above a width, or a width is too large.
        """
        for width in self.widths:
            features = features_of(width, units)
            if features > MOST_FEATURES:
                raise UserError(f"--width {width} is {features:,} features: must be at most {MOST_FEATURES:,}")
            for k in self.sparsities:
                if k > features:
                    raise UserError(
                        f"--k {k} is above --width {width}, which is {features} features of {units} units: a "
                        "state cannot have more features than there are"
                    )


def _distinct(option: str, text: str) -> tuple[str, ...]:
    names = split(text)
    if not names:
        raise UserError(f"--{option} is empty: give at least one")
    if len(set(names)) < len(names):
        raise UserError(f"--{option} is {text}: names a value twice")
    return names
