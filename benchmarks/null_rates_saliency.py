"""Maps of saliency.py that know nothing of the policy, and true ones, for benchmarks/null_rates.py.

Views, networks and maps are those of tests/planted_maps.py. A map passes if no check of `judged` fails.
"""

import functools
from collections.abc import Callable

import numpy as np

from analysis.attribution.sanity import RANDOM
from tests.planted_maps import POLICY_FREE, Maps, checked, policy_free, true_maps

SALIENCY = "saliency: "
OWN = 0.5
"""Worth of what no other network shares, where that of food nearby is 1."""

Run = Callable[[np.random.Generator], dict[str, bool]]


def policy_free_cases() -> dict[str, Run]:
    """Return maps that must not pass, by name."""
    return {f"{SALIENCY}{name}": functools.partial(_free_passes, draw) for name, draw in POLICY_FREE.items()}


def _free_passes(draw: Callable[[np.random.Generator], Maps], rng: np.random.Generator) -> dict[str, bool]:
    return _passing(draw(rng))(rng)


def warned_cases() -> dict[str, Run]:
    """Return what such a map passes if it is compared with a random order alone."""

    def beats_random(rng: np.random.Generator) -> dict[str, bool]:
        leads = checked(rng, OWN, policy_free("food first")).leads
        return {"beats a random order": any(check.of == RANDOM and check.passed for check in leads)}

    return {f"{SALIENCY}food first, against a random order alone": beats_random}


def true_cases() -> dict[str, Run]:
    """Return true maps, which should pass, by name."""
    return {f"{SALIENCY}true map, {own:g} of its own": _passing(true_maps, own) for own in (0.1, 0.25, 0.5)}


def _passing(maps: Maps, own: float = OWN) -> Run:
    def run(rng: np.random.Generator) -> dict[str, bool]:
        sanity = checked(rng, own, maps)
        return {
            "passes all checks": not sanity.failures(),
            "its order passes": all(check.passed for check in sanity.leads),
        }

    return run
