"""What runs of intervene.py found: edits of the memory in the running game, shown beside what they edited."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from activation_store.interventions import Arm
from analysis.interventions.effects.outcomes import title_with_unit
from analysis.runs.finished_files import EFFECTS_FILE, FinishedFiles, RunDescription, StoredEstimate
from common.argument_checks import split
from common.user_error import UserError

FILMS_FILE = "intervention.html"
_COUNTS = "effect"
_RANDOM = "random directions"
_CHANGES, _LEAST, _GAIN = 6, 0.005, "gain_total/"
"""How many options are shown whose probability an edit changes most at once, if by so much; how outcomes are called."""


@dataclass(frozen=True)
class _Control:  # here and below: what is read of effects.json
    control: str
    effect: StoredEstimate


@dataclass(frozen=True)
class _Effect:
    arm: str
    outcome: str
    effect: StoredEstimate
    verdict: str
    against: list[_Control] = field(default_factory=list)


@dataclass(frozen=True)
class _AtOnce:
    arm: str
    outcome: str
    level: StoredEstimate


@dataclass(frozen=True)
class _Effects:
    episodes: int
    arms: list[Arm]
    effects: list[_Effect]
    at_once: list[_AtOnce]


Change = tuple[str, float, float, float, float | None]
"""An effect that counts, beyond chance and every kind of control: outcome in words, mean, ends of its interval, and the
mean effect of random directions; None if none were played."""


@dataclass(frozen=True)
class PlayedEdit:
    """One edit of a run, in words, and what it did."""

    run: str  # name of the run's folder
    edit: str
    directions: tuple[str, ...]  # names of the directions or sparse features that it edits
    sources: tuple[str, ...]  # SHA-256 of the files that these are in
    episodes: int
    dose: float | None  # None if the edit has none
    tested: int  # number of outcomes in behaviour
    controlled: bool  # whether random directions, or other controls, were played as well; without, nothing counts
    changes: tuple[Change, ...]
    options: dict[str, float]
    """Change of the probability of options at once, the largest first, by name; none that rounds to 0."""


def read_edits(finished: FinishedFiles, checkpoint_sha256: str | None) -> list[PlayedEdit]:
    """Read a run of intervene.py.

    Args:
        checkpoint_sha256: of the policy that the dump is of; None where it is unknown.

    Raises:
        UserError: it is damaged, or edited another policy.
    """
    run = finished.description()
    if checkpoint_sha256 is not None and run.input.get("policy") != checkpoint_sha256:
        raise UserError(f"{finished.path} edited another policy than the one that the dump is of")
    _, content = finished.read_json(EFFECTS_FILE, _Effects)
    return [_edit(finished.path.resolve().name, run, content, arm) for arm in content.arms if arm.is_studied]


def _edit(name: str, run: RunDescription, content: _Effects, arm: Arm) -> PlayedEdit:
    edits: list[dict[str, Any]] = [run.arguments, *run.arguments.get("further", [])]
    directions = [name for edit in edits for name in _directions(edit)]
    own = [effect for effect in content.effects if effect.arm == arm.name]
    gains = {item.outcome: item.level.value for item in content.at_once if item.arm == arm.name}
    options = {
        outcome.removeprefix(_GAIN).replace("/", " "): value
        for outcome, value in gains.items() if outcome.startswith(_GAIN) and value is not None
    }  # fmt: skip
    largest = sorted((name for name in options if abs(options[name]) >= _LEAST), key=lambda name: -abs(options[name]))
    changes: list[Change] = []
    for item in own:
        value, low, high = item.effect.value, item.effect.low, item.effect.high
        if item.verdict == _COUNTS and value is not None and low is not None and high is not None:
            random = next((control.effect.value for control in item.against if control.control == _RANDOM), None)
            changes.append((title_with_unit(item.outcome), value, low, high, random))
    sources = tuple(run.input[name] for name in ("directions", "features") if name in run.input)
    return PlayedEdit(
        name, _in_words(edits, run.arguments, arm), (arm.direction,) if arm.direction else tuple(directions), sources,
        content.episodes, arm.dose, len(own), any(effect.against for effect in own), tuple(changes),
        {option: options[option] for option in largest[:_CHANGES]},
    )  # fmt: skip


def _directions(edit: dict[str, Any]) -> list[str]:
    given = (edit.get(option) for option in ("direction", "origin", "target"))
    return [name for text in given for name in split(text if isinstance(text, str) else "")]


def _in_words(edits: Sequence[dict[str, Any]], arguments: dict[str, Any], arm: Arm) -> str:
    """Name the edits, what they are of, and when they are made."""
    whats = [arm.direction or ", ".join(_directions(edit)) or edit.get("variable") or "the memory" for edit in edits]
    words = " and ".join(f"{edit.get('edit')} {what}" for edit, what in zip(edits, whats, strict=True))
    first = arguments.get("from_tick", 0)
    until, condition = (arguments.get(name) for name in ("until_tick", "condition"))
    features = " and ".join(dict.fromkeys(str(edit["donor"]) for edit in edits if edit.get("donor")))
    donors = f", donors by {features}" if features else ""
    if until is not None:
        when = f", in tick {first}" if until - first == 1 else f", in ticks {first} to {until - 1}"
    else:
        when = f", from tick {first}" if first else ""
    dose = f", dose {arm.dose:+g}" if arm.dose is not None else ""
    return f"{words}{dose}{donors}{when}{f', while {condition}' if condition else ''}"
