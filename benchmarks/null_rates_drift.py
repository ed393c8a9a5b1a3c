"""States whose odds drift over a life: their order given age, and without. Cases of `benchmarks.null_rates`."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from analysis.life.phases.label_sequences import LabelSequences
from analysis.life.phases.memory import memory_of_two
from analysis.life.phases.transitions import transitions
from analysis.life.phases.visits import visits
from analysis.statistics.inference import LEVEL, Inference
from tests.planted_labels import drifting_odds

PAIRS, MEMORY = "what follows what", "memory of order two"
GIVEN_AGE, ANY_AGE = ", given age", ", without age"

Run = Callable[[np.random.Generator, Inference], dict[str, bool]]


def found_in_orders(sequences: LabelSequences, settings: Inference) -> dict[str, bool]:
    """Test labels as cluster_life_phase.py does; return what it finds of `PAIRS` and `MEMORY`, given age and not."""
    visit_table, states = visits(sequences), len(sequences.labels)
    pairs = transitions(sequences, visit_table, settings.permutations, settings.seed)
    memory = memory_of_two(visit_table, states, settings.permutations, settings.seed)
    tests = {
        PAIRS + GIVEN_AGE: pairs.given_age.q,
        PAIRS + ANY_AGE: pairs.any_age.q,
        MEMORY + GIVEN_AGE: memory.given_age.q,
        MEMORY + ANY_AGE: memory.any_age.q,
    }
    return {name: bool((q <= LEVEL).any()) for name, q in tests.items()}


def drifting_cases(ending: str) -> Iterator[tuple[str, Run]]:
    """Yield names and runs of states that drift; `ending`, `GIVEN_AGE` or `ANY_AGE`, says which tests are counted."""
    for states, drift in ((3, 3.0), (5, 3.0), (4, 6.0)):
        name = f"{states} states, odds drift {np.exp(drift):.0f}-fold over a life"
        yield name, functools.partial(_drifting, states=states, drift=drift, ending=ending)


def _drifting(rng: np.random.Generator, settings: Inference, states: int, drift: float, ending: str) -> dict[str, bool]:
    discoveries = found_in_orders(drifting_odds(rng, states, drift), settings)
    return {name: discovered for name, discovered in discoveries.items() if name.endswith(ending)}
