"""The page of sparse features with planted numbers: what it says of them, and what stays when more are shown."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import SparseDictionary
from analysis.sparse import describing
from analysis.sparse.describing import Described
from analysis.sparse.settings import SparseSettings
from tests.browser import opened

FEATURES, TICKS, PARTS = 45, 3, 10
TEST_EPISODES = (2, 5, 9)
READY = "document.querySelector('article') !== null"


def described() -> Described:
    """Features with one top record each, all in one episode, whose lives are three ticks long."""
    number = np.arange(FEATURES)
    nothing = np.zeros(FEATURES, np.int64)
    of_features = {
        "number": number, "best": nothing, "density": np.full(FEATURES, 0.5), "strongest": np.full(FEATURES, 2.0),
        "r": np.full(FEATURES, 0.5), "given": np.full(FEATURES, 0.4), "auc": np.full(FEATURES, 0.7),
        "q": np.where(number == 0, 1e-5, 0.25), "described": np.ones(FEATURES, np.uint8),
        **{name: np.full(FEATURES, np.nan) for name in ("cosine", "cosine_q", "value_effect", "action_effect")},
    }  # fmt: skip
    tables = {
        **{f"feature.{name}": values for name, values in of_features.items()},
        "feature.byAge": np.ones((FEATURES, PARTS), np.float32),
        "view.tiles": np.full((FEATURES, 225), 2, np.uint8), "attack.target": nothing - 1,
        "entity.count": nothing,
        **{f"entity.{name}": nothing[:0] for name in ("kind", "id", "health", "down", "right")},
        "top.feature": number, "top.strength": np.full(FEATURES, 2, np.float32), "top.tick": nothing + 1,
        "top.agent": nothing + 7, "top.episode": nothing + TEST_EPISODES[1], "top.ticks": nothing + TICKS,
        "trace.tick": np.tile(np.arange(TICKS), FEATURES), "trace.strength": np.ones(FEATURES * TICKS, np.float32),
        "trace.behaviour": np.tile(np.array([0.00125, 1024, 0.002], np.float32), FEATURES),
    }  # fmt: skip
    texts = {"titles": ["high reward"] * FEATURES, "descriptions": ["planted"] * FEATURES}
    rows: list[dict[str, object]] = [{"described": True}] * FEATURES
    dictionary = cast(SparseDictionary, SimpleNamespace(features=FEATURES))
    return Described("planted", dictionary, TEST_EPISODES, rows, tables, texts, [], None, [])


@pytest.fixture
def page(browser, tmp_path: Path) -> Iterator:
    settings: Any = SimpleNamespace(feature_set="self_food", erase="", layer="lstm_hidden", dump=Path("dump"))
    metadata: Any = SimpleNamespace(policy="policy")
    file = tmp_path / "sparse_features.html"
    file.write_text(describing._page("run", described(), cast(SparseSettings, settings), cast(DumpMetadata, metadata)))
    with opened(browser, file, READY) as page:
        yield page


def test_it_says_what_was_measured_and_keeps_an_open_life_while_more_is_shown(page) -> None:
    header = page.locator("header").inner_text()
    assert "of 3 episodes (2, 5, 9)" in header, "those without a top record were tested on, too"
    cards = page.locator("article")
    assert [cards.nth(i).locator("dl").inner_text().count("<0.001") for i in (0, 1)] == [1, 0]
    cards.first.locator(".top").click()
    assert "from 0.00125 to 1024 points" in page.inner_text("#life-pointer")
    assert cards.count() < FEATURES
    page.get_by_role("button", name="Show more").click()
    assert cards.count() == FEATURES and not page.locator("#more").is_visible()
    assert page.locator("#life").is_visible() and page.locator(".top[aria-pressed=true]").count() == 1
    page.fill("#search", "feature_44")
    assert cards.count() == 1 and page.locator("#life").is_hidden()
