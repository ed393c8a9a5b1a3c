"""Dumps that tests leave as they are."""

from pathlib import Path

import pytest

from activation_store.exchange.export import convert
from tests.planted import planted_dump, with_optional_parts, write_planted

LAYERS = {"action_decoder": 16, "lstm_cell": 3}


def silent(share: float) -> None:
    assert 0 <= share <= 1


@pytest.fixture(scope="package")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One dump of two layers with everything optional, written in JSON and converted to parquet."""
    folder = tmp_path_factory.mktemp("dumps")
    planted = with_optional_parts(planted_dump(agents=6, episodes=3, layers=LAYERS))
    written = write_planted(folder / "json", planted)
    convert(written, folder / "parquet", "parquet", None, silent)
    return {"json": written, "parquet": folder / "parquet"}
