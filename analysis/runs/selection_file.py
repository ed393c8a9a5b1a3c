"""Points of a run that somebody selected in the explorer and saved to a file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.lives import lives_of
from analysis.runs.cluster_run import ClusterRun, read_cluster_run
from analysis.runs.finished_files import open_finished
from analysis.runs.finished_run import recorded_dump
from analysis.runs.propagated_labels import CarryingRule, labelled_records, rule_from
from common.checked_json import in_shape, read_small_json
from common.user_error import UserError

SELECTION_KIND = "selection of points"
_ADVICE = "select points in the explorer and press Save"


@dataclass(frozen=True)
class _File:
    """The content of the file, as the explorer writes it."""

    kind: str
    run: str
    runKey: str  # SHA-256 of the run's labels
    folder: str  # of the run
    records: list[int]


@dataclass(frozen=True)
class Selection:
    """Selected points of a run."""

    run: ClusterRun
    dump: Path  # folder of the dump that the run was made from
    records: np.ndarray  # which of the run's records are selected, ascending, (N,) int64

    @property
    def places(self) -> dict[str, np.ndarray]:
        """Identity of the selected records, the columns of `IDENTITY`, (N,) int64 each."""
        return {name: column[self.records] for name, column in self.run.places.items()}

    def rule(self) -> CarryingRule:
        """Fit a rule that labels states of the run's layer: 1 where they are like the selected ones, 0 elsewhere.

        Raises:
            UserError: the dump cannot be read, or lacks records of the run.
        """
        labelled = labelled_records(self.run, self.dump, None)
        selected = np.zeros(len(self.run.label), np.int64)
        selected[self.records] = 1
        return rule_from(labelled.activations[self.run.layer], selected, lives_of(labelled).index)


def read_selection(path: Path, dump: Path | None = None) -> Selection:
    """Read a selection, and the labels of the run that it was made in.

    Args:
        dump: folder of the run's dump; by default where the run found it.

    Raises:
        UserError: the file is no selection, its run is no longer there or has changed, or was made from another dump.
    """
    content = in_shape(_File, read_small_json(path), f"{path} holds no selection", _ADVICE)
    if content.kind != SELECTION_KIND:
        raise UserError(f"{path} holds {content.kind!r}, no selection: {_ADVICE}")
    folder = Path(content.folder)
    if not folder.is_dir():
        raise UserError(f"{path} was selected in the run {folder}, which is not there: write its folder into the file")
    dump = dump or recorded_dump(folder, open_finished(folder).description())
    run = read_cluster_run(folder, dump)
    if run.labels_sha256 != content.runKey:
        raise UserError(f"{path} was selected in another run than {folder} is now: {_ADVICE}")
    records = np.unique(np.array(content.records, np.int64))
    if not len(records) or records[0] < 0 or records[-1] >= len(run.label):
        raise UserError(f"{path} must name records of {folder}, from 0 to {len(run.label) - 1}: {_ADVICE}")
    return Selection(run, dump, records)
