"""The files of a validation."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from activation_store.files import sha256, write_json
from representation.world_model.options import SETTLING
from representation.world_model.tables import write_table
from representation.world_model.validation import SignAgreement, Validated
from representation.world_model.validation_figure import draw_validation

TABLE_FILE, JSON_FILE, FIGURE_FILE = "validation.tsv", "validation.json", "validation.png"
AGREEMENT_FILE = "sign_agreement.tsv"


def save_validation(
    folder: Path, rows: Sequence[Validated], agreements: Sequence[SignAgreement], model: Path, settings: dict[str, Any]
) -> None:
    """Write both tables and the figure.

    Args:
        folder: to write to.
        rows: the table.
        agreements: summed up.
        model: file of the world model.
        settings: what else to say.
    """
    draw_validation(rows, folder / FIGURE_FILE)
    write_table(folder / TABLE_FILE, rows)
    told = {"world_model_sha256": sha256(model), "settling_ticks": SETTLING, **settings}
    content = {"rows": [asdict(row) for row in rows], "sign_agreement": [asdict(each) for each in agreements]}
    write_json(folder / JSON_FILE, {**told, **content})
