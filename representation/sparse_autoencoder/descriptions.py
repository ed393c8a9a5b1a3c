"""A feature's meaning in words, by template, from measured numbers alone."""

import numpy as np

from analysis.features.feature import YES_OR_NO, Feature
from analysis.share_text import share_text
from representation.sparse_autoencoder.meaning import AGE_BINS, WEAKEST, Meanings

_STRONG, _MODERATE = 0.5, 0.3
_CONCENTRATED = 2.0


def title(meanings: Meanings, number: int, behaviours: tuple[Feature, ...]) -> str:
    """Return a short name, such as "high self_food" or "not described"."""
    if meanings.density[number] == 0:
        return "never active in the test episodes"
    if not meanings.described[number]:
        return "not described"
    best = int(meanings.best[number])
    return _phrase(behaviours[best], meanings.tested.correlation[number, best])


def description(meanings: Meanings, number: int, behaviours: tuple[Feature, ...]) -> str:
    """Return one or two sentences on when a feature is active and what it goes with."""
    if meanings.density[number] == 0:
        return "It is never active in the test episodes."
    when = f"Active in {share_text(float(meanings.density[number]))} of ticks{_in_life(meanings.by_age[number])}."
    best = int(meanings.best[number])
    behaviour = behaviours[best]
    r, given, auc = (
        each[number, best] for each in (meanings.tested.correlation, meanings.tested.given_time, meanings.tested.auc)
    )
    q = meanings.q[number]
    if not meanings.described[number]:
        reason = _reason(q, min(abs(r), abs(given)))
        return f"{when} It goes with none of the {len(behaviours)} behaviours: the best, {behaviour.name}, {reason}."
    size = max(abs(r), 0.0)
    how = "strongly" if size >= _STRONG else "moderately" if size >= _MODERATE else "weakly"
    return (
        f"{when} It goes {how} with {_phrase(behaviour, r)} (r {r:+.2f}, AUC {auc:.2f}), also at the same tick and age "
        f"(r {given:+.2f}, q {_q(q)})."
    )


def _phrase(behaviour: Feature, r: float) -> str:
    if behaviour.unit == YES_OR_NO:
        return behaviour.name if r > 0 else f"not {behaviour.name}"
    return f"{'high' if r > 0 else 'low'} {behaviour.name}"


def _reason(q: float, size: float) -> str:
    if not np.isfinite(q):
        return "varies in too few of the lives in which the feature is active"
    if size < WEAKEST:
        return f"has a correlation below {WEAKEST:g}"
    return f"does so no more than chance would (q {_q(q)})"


def _q(q: float) -> str:
    return f"{q:.3f}" if q >= 0.001 else "below 0.001"


def _in_life(by_age: np.ndarray) -> str:
    """Say in which third of lives it is most active, if that is clear."""
    thirds = np.array([part.mean() for part in np.array_split(by_age, 3)])
    most = int(thirds.argmax())
    rest = np.delete(thirds, most).mean()
    assert len(by_age) == AGE_BINS
    if thirds[most] < _CONCENTRATED * rest:
        return ""
    return f", mostly in the {('first', 'second', 'last')[most]} third of lives"
