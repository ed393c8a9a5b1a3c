"""Every record of a semantic run's dump with its code: what cards, pictures and videos are made from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from activation_store.layers import ENCODER_OUTPUT, LSTM_HIDDEN, SEMANTIC_CODE, SEMANTIC_PLANE
from activation_store.reader import read_dump, read_metadata
from activation_store.schema import DumpMetadata, Records
from analysis.features.observed import Observed, own_truth_columns
from analysis.life.events import DONE, KILLS
from analysis.lives import Lives, lives_of
from analysis.position import POSITION_COLUMNS
from analysis.runs.cluster_run import FinishedRun, read_run
from analysis.runs.codebook_rule import CodebookRule, read_codebook, read_names
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import RUN_FILE
from common.progress_view import Step

_COLUMNS = (DONE, KILLS, "map", *POSITION_COLUMNS)


def hidden_layer(metadata: DumpMetadata) -> str:
    """Return the layer that the codes of a dump's policy are read from."""
    return LSTM_HIDDEN if metadata.environment.get("memory", {}).get("layers", 1) else ENCODER_OUTPUT


@dataclass(frozen=True, eq=False)
class CodedDump:
    """Every record of a dump with its code. B records."""

    run: FinishedRun
    rule: CodebookRule
    names: dict[int, str]  # of codes, as a person gave them
    metadata: DumpMetadata
    seen: Observed
    label: np.ndarray  # code of each, (B,) int64
    plane: np.ndarray  # place of each in the plane of the rule, (B, dimensions) float32

    @property
    def records(self) -> Records:
        """The records."""
        return self.seen.records

    @cached_property
    def lives(self) -> Lives:
        """Their lives."""
        return lives_of(self.records)

    @property
    def labels(self) -> list[int]:
        """The codes that the run found, by number."""
        return self.run.clusters.clusters


def open_run(path: Path, dump: Path | None) -> tuple[FinishedRun, CodebookRule]:
    """Open a semantic run and find its dump.

    Raises:
        UserError: it is no finished run with a codebook, or its dump is missing.
    """
    rule = read_codebook(open_finished(path, "" if (path / RUN_FILE).exists() else "semantic_clusters.py fit"))
    return read_run(path, dump), rule


def coded_dump(path: Path, dump: Path | None, step: Step) -> CodedDump:
    """Read every record of a semantic run's dump, with its code.

    Args:
        dump: its dump, if it has been moved since.

    Raises:
        UserError: the run or its dump cannot be read.
    """
    run, rule = open_run(path, dump)
    metadata, layer = read_metadata(run.dump), run.clusters.layer
    layers = [layer, SEMANTIC_PLANE] if layer == SEMANTIC_CODE else [layer]
    columns = {*own_truth_columns(metadata), *(name for name in _COLUMNS if name in metadata.columns)}
    with step(f"reading {run.dump.name}") as report:
        records = read_dump(
            run.dump, layers=layers, columns=sorted(columns), leave_out=["tables", "tile"], progress=report
        )
    activations = records.activations.pop(layer)
    plane = records.activations.pop(SEMANTIC_PLANE) if layer == SEMANTIC_CODE else rule.plane(activations)
    label = rule.labels_of(activations)
    return CodedDump(run, rule, read_names(path), metadata, Observed(records, metadata), label, plane)
