"""What finished runs of intervene.py edited in the game, and what that did at once."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from activation_store.directions import Directions
from activation_store.interventions import LIVES_FILE, RUN_FILE, Arm, LivesTable, Outcome, read_lives
from activation_store.sparse_dictionary import SparseDictionary
from agent_zoo.edit_options import EditOptions, needs_directions
from analysis.interventions.inference import OverEpisodes
from analysis.interventions.run_file import dictionary_of_run, directions_of_run, read_run_file
from analysis.runs.finished_files import open_finished
from analysis.statistics.inference import Inference
from analysis.statistics.resampling import Estimate
from representation.world_model.simulation_options import DIRECTIONS
from user_error import UserError

Made = Literal["in every tick", "once"]
STYLES = ("melee", "range", "mage")
QUANTITIES = {
    "value": Outcome("value_change", against="in_play").name,
    **{
        f"probability of {name}": Outcome("gain", f"Move.Direction/{name.title()}", "in_play").name
        for name in DIRECTIONS
    },
    **{f"probability of {name}": Outcome("gain", f"Attack.Style/{name.title()}", "in_play").name for name in STYLES},
}
"""What is compared, by the names of the outcomes of intervene.py that say how much it changed at once, in play: what a
gradient predicts is what this tick's edit does in the state that it finds."""
_KINDS: dict[str, Made] = {"edit": "in every tick", "edited once": "once"}
_EDITS = ("collapse", "steer", "swap", "erase", "clear", "splice")
_DRAWS = 9_999
"""Resamples of intervals, as many as intervene.py draws."""


@dataclass(frozen=True)
class InGame:
    """What an edit of one dose did at once in the game.

    Attributes:
        dose: of the edit; None if it has none.
        made: whether agents were edited in every tick, or in single ones with unedited ticks between.
        changes: quantity -> mean over episodes of the mean over edited lives, with its 95% interval.
        episodes: played.
    """

    dose: float | None
    made: Made
    changes: Mapping[str, Estimate]
    episodes: int


@dataclass(frozen=True, eq=False)
class Intervened:
    """A finished run.

    Attributes:
        folder: of the run.
        options: of its edits, made together, with all doses.
        directions: that they name; None if they name none.
        dictionary: of sparse features that they name; None likewise.
        found: what they did, dose by dose.
    """

    folder: Path
    options: tuple[EditOptions, ...]
    directions: Directions | None
    dictionary: SparseDictionary | None
    found: tuple[InGame, ...]


def read_intervened(folder: Path, policy: str, policy_sha256: str) -> Intervened:
    """Read a finished run of intervene.py.

    Args:
        folder: of the run.
        policy: name of the policy in the world model.
        policy_sha256: of its checkpoint.

    Raises:
        UserError: the run is unfinished or damaged, edited another policy, made an edit that simulations cannot make,
            or lacks what is compared.
    """
    finished = open_finished(folder, "intervene.py")
    run = finished.description()
    if run.input.get("policy") != policy_sha256:
        raise UserError(f"{folder} edited another policy than {policy} in the world model: give runs on that one")
    options = _options(folder, run.arguments)
    dictionary = dictionary_of_run(finished, run) if run.arguments.get("features") else None
    named = any(needs_directions(each, run.arguments.get("features")) for each in options)
    directions = directions_of_run(finished, run) if named else None
    finished.read(LIVES_FILE)  # refuses one that was changed
    played, lives = read_run_file(folder / RUN_FILE), read_lives(folder / LIVES_FILE)
    arms = [arm for arm in played.arms if arm.policy == "trained" and arm.kind in _KINDS]
    over = OverEpisodes(Inference(permutations=_DRAWS, bootstraps=_DRAWS, seed=played.seed))
    found = tuple(_in_game(folder, arm, lives, over) for arm in arms)
    return Intervened(folder, options, directions, dictionary, found)


def _options(folder: Path, arguments: Mapping[str, Any]) -> tuple[EditOptions, ...]:
    """The edits of a run, from its run.json."""
    for name, option in (("condition", "--while"), ("from_tick", "--from-tick"), ("until_tick", "--until-tick")):
        if arguments.get(name):
            raise UserError(
                f"{folder} edited with {option}, but simulated lives are edited in every tick: leave it out"
            )
    names = [each.name for each in fields(EditOptions)]
    made = [arguments, *arguments.get("further", ())]
    options = tuple(EditOptions(**{name: each[name] for name in names if name in each}) for each in made)
    for each in options:
        if each.edit not in _EDITS:
            raise UserError(f"{folder} made the edit {each.edit}: --validate needs {', '.join(_EDITS)}")
        each.check()
    return options


def _in_game(folder: Path, arm: Arm, lives: LivesTable, over: OverEpisodes) -> InGame:
    table = lives.of_arm(arm.name)
    if missing := [name for name in QUANTITIES.values() if name not in table.outcomes]:
        raise UserError(
            f"{folder} lacks {missing[0]}, which --validate compares: play it with this version's intervene.py"
        )
    episodes, place = np.unique(table.episode, return_inverse=True)
    changes = {}
    for name, outcome in QUANTITIES.items():
        values = table.outcomes[outcome]
        known = table.edited & np.isfinite(values)
        count = np.bincount(place[known], minlength=len(episodes))
        with np.errstate(invalid="ignore"):
            changes[name] = over.estimate(np.bincount(place[known], values[known], len(episodes)) / count)
    return InGame(arm.dose, _KINDS[arm.kind], changes, len(episodes))
