"""Edits of a run of intervene.py in words, as its options have them."""

from typing import Any

import pytest

from analysis.explorer.edits import read_edits
from analysis.runs.finished_files import open_finished
from analysis.runs.run_folder import RunFolder

ARM = {"name": "edit", "kind": "edit", "policy": "trained", "dose": None, "twin": "unedited"}


@pytest.mark.parametrize(
    ("arguments", "arm", "words", "directions"),
    [
        ({"edit": "clear", "from_tick": 0, "until_tick": None}, {}, "clear the memory", ()),
        ({"edit": "erase", "variable": "tick", "from_tick": 5}, {}, "erase tick, from tick 5", ()),
        (
            {"edit": "swap", "origin": "ic_3", "target": "ic_5", "from_tick": 2, "until_tick": 6}, {},
            "swap ic_3, ic_5, in ticks 2 to 5", ("ic_3", "ic_5"),
        ),
        (
            {"edit": "collapse", "direction": "a,b", "until_tick": 9}, {"direction": "b"},
            "collapse b, in ticks 0 to 8", ("b",),
        ),
        (
            {"edit": "interchange", "direction": "a", "donor": "self_food", "further": [{"edit": "clear"}]}, {},
            "interchange a and clear the memory, donors by self_food", ("a",),
        ),
        ({"edit": "steer", "direction": "a"}, {"dose": -1.5}, "steer a, dose -1.5", ("a",)),
    ],
)  # fmt: skip
def test_an_edit_is_said_in_words(
    tmp_path, arguments: dict[str, Any], arm: dict[str, Any], words: str, directions: tuple[str, ...]
) -> None:
    with RunFolder(tmp_path / "run", {"input": {"policy": "1" * 64}, "arguments": arguments}) as run:
        run.save_json("effects.json", {"episodes": 2, "arms": [ARM | arm], "effects": [], "at_once": []})
    (edit,) = read_edits(open_finished(tmp_path / "run"), "1" * 64)
    assert (edit.edit, edit.directions, edit.tested) == (words, directions, 0)
