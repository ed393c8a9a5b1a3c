"""The control that edits nothing: its lives must be those of its twin, bit for bit."""

from collections.abc import Sequence

import numpy as np

from activation_store.interventions import IN_PLAY, TOTAL
from analysis.interventions.pairs import Pairs

_ROUNDING = 1e-4


def broken_pairing(everything: Sequence[Pairs], in_behaviour: Sequence[str], at_once: Sequence[str]) -> dict[str, str]:
    """Return an outcome in which each arm that edits nothing differs from its twin, by arm; empty if pairing works.

    Such an arm calls the edit but keeps its input. If it differs, chance is not shared between arms, or calling the
    edit changes the state by itself, and no difference between arms means what it should.
    """
    found = {}
    for pairs in everything:
        if pairs.arm.kind != "no edit":
            continue
        differs = [
            name for name in in_behaviour if not np.array_equal(pairs.values[name], pairs.twin[name], equal_nan=True)
        ]
        differs += [name for name in at_once if _is_change(name) and (np.abs(pairs.values[name]) > _ROUNDING).any()]
        if differs:
            found[pairs.arm.name] = differs[0]
    return found


def _is_change(outcome: str) -> bool:
    return outcome.partition("/")[0].endswith((TOTAL, IN_PLAY))
