"""The data of one analysis: the records kept of a dump, one layer's activations, and the features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from activation_store.reader import read_episodes
from activation_store.records import Records
from activation_store.schema import MAY_BE_UNRECORDED, TILE_COLUMNS, DumpMetadata
from activation_store.selection import Gathering, no_rows, select
from analysis.clusters.settings import AnalysisSettings
from analysis.features import Feature, feature_matrix, needs_history, read_history
from analysis.features.observed import feature_columns
from analysis.features.registry import CATEGORIES
from analysis.lives import Lives, lives_of, rolling_mean
from analysis.position import has_position, positions
from common.progress_view import Step
from common.user_error import UserError

ROLLING_WINDOW = 5
"""Length in kept records of a life of the centred window over which some figures average features."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """B records, U units, F features."""

    metadata: DumpMetadata
    layer: str
    features: tuple[Feature, ...]
    records: Records
    lives: Lives
    activations: np.ndarray  # (B, U) float32, finite, not all the same
    values: np.ndarray  # (B, F) float64, finite

    def __len__(self) -> int:
        return len(self.records)

    @property
    def heading(self) -> str:
        """The heading of every figure."""
        return f"{self.metadata.policy}, {self.layer}"

    @cached_property
    def own(self) -> np.ndarray:
        """The features that are not options of a categorical feature, columns of `values`, (O,) int64."""
        return np.array([i for i, feature in enumerate(self.features) if not feature.choice], np.int64)

    @cached_property
    def codes(self) -> dict[str, np.ndarray]:
        """The option of each record, (B,) int64, of each categorical feature of which no option is missing."""
        columns = {feature: i for i, feature in enumerate(self.features)}
        return {
            name: self.values[:, [columns[feature] for feature in category.features]].argmax(axis=1)
            for name, category in CATEGORIES.items()
            if columns.keys() >= set(category.features)
        }

    @cached_property
    def rolled(self) -> np.ndarray:
        """The features as means over `ROLLING_WINDOW` kept records of a life, (B, F) float64."""
        return rolling_mean(self.values, self.lives, ROLLING_WINDOW)


def read_dataset(
    settings: AnalysisSettings, metadata: DumpMetadata, features: Sequence[Feature], step: Step
) -> Dataset:
    """Read a dump for an analysis, and compute the features of the records kept.

    Observations are held for one episode at a time, and only identities, positions and features are kept of them.
    Features over time need every tick, for which each episode is read a second time.

    Raises:
        UserError: as `activation_store.reader.read_dump` and `analysis.features.feature_matrix`, too few records are
            left, or the activations are not finite or all the same.
    """
    layer, folder = settings.layer, settings.dump
    leave_out = ["tables", *MAY_BE_UNRECORDED]
    if has_position(metadata) and not any(feature.of_tiles for feature in features):
        leave_out.append("tile")
    wanted = select(
        folder, metadata, layers=[layer], columns=feature_columns(metadata), leave_out=leave_out,
        subsample=settings.thinning,
    )  # fmt: skip
    over_time = needs_history(features, settings.thinning)
    whole = read_history(folder) if over_time and metadata.format == "json" else None
    parts, values = (
        [_without_observations(Gathering(metadata, wanted, 0).finish(), metadata)],
        [np.empty((0, len(features)))],
    )
    with step("reading the dump and computing features") as report:
        for records in read_episodes(folder, metadata, wanted, report):
            history = whole
            if over_time and whole is None:
                history = read_history(folder, episodes=np.unique(records.episode).tolist())
            values.append(feature_matrix(records, metadata, features, history))
            parts.append(_without_observations(records, metadata))
    records = Records.concatenate(parts)
    settings.check_enough(len(records))
    check_activations(records, layer)
    return Dataset(
        metadata, layer, tuple(features), records, lives_of(records), records.activations[layer], np.concatenate(values)
    )


def _without_observations(records: Records, metadata: DumpMetadata) -> Records:
    """Return records without what they saw, but with their positions."""
    row, col = (np.array(side) for side in positions(records))  # copies: views would keep the tiles
    return replace(
        records, columns={**records.columns, "row": row, "col": col},
        tile=np.empty((len(records), 0, len(TILE_COLUMNS)), np.int16),
        entity=no_rows(len(records), len(metadata.entity_columns)),
        inventory=no_rows(len(records), len(metadata.inventory_columns)),
    )  # fmt: skip


def check_activations(records: Records, layer: str) -> None:
    """Refuse activations that cannot be analysed.

    Raises:
        UserError: a value is NaN, infinite or so large that distances overflow, or all records are the same.
    """
    activations = records.activations[layer]
    finite = np.isfinite(activations).all(axis=1)
    if not finite.all():
        i = int(np.argmin(finite))
        raise UserError(
            f"{layer} holds NaN or infinity in {np.count_nonzero(~finite)} of {len(records)} records, first of agent "
            f"{records.agent_id[i]} at step {records.step[i]}: the policy has diverged; extract an earlier checkpoint"
        )
    largest = float(np.abs(activations).max())
    if activations.shape[1] * (2 * largest) ** 2 > float(np.finfo(np.float32).max):
        raise UserError(
            f"{layer} holds {largest:.3g}, so that squared distances overflow: the policy has diverged; extract an "
            "earlier checkpoint"
        )
    if (activations == activations[0]).all():
        raise UserError(f"every kept record has the same {layer}: there is nothing to analyse; check the policy")
