"""Write results as tables."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from activation_store.files import write_text


def write_table(path: Path, rows: Sequence[Any]) -> None:
    """Write data classes of one kind as tab-separated lines under the names of their fields, whole or not at all."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(asdict(rows[0])), delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(path, table.getvalue())
