"""Views with a planted value of their tiles, its true map, and maps that know nothing of it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.attribution.methods import counterfactual_materials
from analysis.attribution.sanity import Sanity, Views, judged, policy_free_maps
from analysis.materials import MATERIAL_NAMES

SIDE, MATERIALS = 15, len(MATERIAL_NAMES)
KINDS = ("grass", "foilage", "scrub", "water", "stone")
GRASS, FOOD, SCRUB, WATER, STONE = (MATERIAL_NAMES.index(name) for name in KINDS)
STAGES = ("heads and critic", "all weights")

Maps = Callable[["Network", torch.Tensor], torch.Tensor]
"""Returns the maps of a network in some views; of one that knows nothing of it, whatever the network."""


@dataclass(frozen=True, eq=False)
class Network:
    """A value of views that is a sum over tiles."""

    worth: torch.Tensor  # of each material at each place, (tiles, materials)

    def value(self, material: torch.Tensor) -> torch.Tensor:
        """Return the value of some views, (N, tiles) to (N,)."""
        return self._worth(material).sum(dim=1)

    def true_map(self, material: torch.Tensor) -> torch.Tensor:
        """Return how much the value falls if a tile is replaced, (N, tiles)."""
        return self._worth(material) - self._worth(counterfactual_materials(material, MATERIALS))

    def _worth(self, material: torch.Tensor) -> torch.Tensor:
        return self.worth[torch.arange(material.shape[1]), material.long()]


def trained(rng: np.random.Generator, own: float) -> Network:
    """Return a network that likes food and water nearby and dislikes scrub, as all do, and has a taste of its own.

    Args:
        rng: of its taste.
        own: standard deviation of the worth of a material at a place that no other network shares; that of nearby
            food is 1.
    """
    away = np.hypot(*(np.indices((SIDE, SIDE)) - SIDE // 2)).ravel()
    common = np.zeros((SIDE**2, MATERIALS))
    for material, worth in ((FOOD, 1.0), (SCRUB, -0.7), (WATER, 0.3)):
        common[:, material] = worth
    worth = (common + own * rng.normal(size=common.shape)) * np.exp(-away / 3)[:, None]
    return Network(torch.from_numpy(worth))


def untrained(rng: np.random.Generator) -> Network:
    """Return a network without anything in common with others but that it sees better what is near."""
    away = np.hypot(*(np.indices((SIDE, SIDE)) - SIDE // 2)).ravel()
    return Network(torch.from_numpy(rng.normal(size=(SIDE**2, MATERIALS)) * np.exp(-away / 3)[:, None]))


def views(rng: np.random.Generator, samples: int, states: int) -> torch.Tensor:
    """Draw patchy views, (samples * states, tiles) uint8; those of one sample share three tiles of four."""
    kinds, share = (GRASS, FOOD, SCRUB, WATER, STONE), (0.4, 0.2, 0.15, 0.1, 0.15)
    drawn = []
    for _ in range(samples):
        patches = rng.choice(kinds, (5, 5), p=share).repeat(3, axis=0).repeat(3, axis=1).ravel()
        base = np.where(rng.random(SIDE**2) < 0.5, patches, rng.choice(kinds, SIDE**2, p=share))
        drawn += [
            np.where(rng.random(SIDE**2) < 0.75, base, rng.choice(kinds, SIDE**2, p=share)) for _ in range(states)
        ]
    return torch.from_numpy(np.stack(drawn).astype(np.uint8))


def checked(rng: np.random.Generator, own: float, maps: Maps, samples: int = 20, states: int = 2) -> Sanity:
    """Draw views and a trained network, and judge maps of it.

    Args:
        rng: of all draws.
        own: see `trained`.
        maps: under study, of any network.
        samples, states: samples, and states of each.
    """
    network, material = trained(rng, own), views(rng, samples, states)
    seen = Views(material, MATERIALS, np.repeat(np.arange(samples), states), network.value)
    twins = [maps(untrained(rng), material) for _ in range(3)]
    shuffled = {stage: [maps(untrained(rng), material) for _ in range(2)] for stage in STAGES}
    return judged(seen, maps(network, material), twins, shuffled, None, int(rng.integers(1000)))


def true_maps(network: Network, material: torch.Tensor) -> torch.Tensor:
    """Return what each tile is worth to the network, instead of another one."""
    return network.true_map(material)


def policy_free(name: str) -> Maps:
    """Return maps of `policy_free_maps`."""
    return lambda _, material: policy_free_maps(material)[name]


def food_less_scrub(_: Network, material: torch.Tensor) -> torch.Tensor:
    """Nearest food first and nearest scrub last: as good as a map can be that does not know the network."""
    near = policy_free_maps(material)["nearest first"]
    return torch.exp(near / 3) * (1.0 * (material == FOOD) - 1.0 * (material == SCRUB))


def noisy(maps: Maps, size: float) -> Maps:
    """Add noise that depends on the network, so that other weights do change the maps."""

    def changed(network: Network, material: torch.Tensor) -> torch.Tensor:
        seed = int(network.worth.abs().sum() * 1e6)
        drawn = maps(network, material)
        noise = torch.randn(drawn.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return drawn + size * drawn.std(dim=1, keepdim=True) * noise

    return changed


def of_an_untrained_network(rng: np.random.Generator) -> Maps:
    """Return true maps of another, untrained network each time, whatever the network."""
    return lambda _, material: untrained(rng).true_map(material)


def _fixed(maps: Maps) -> Callable[[np.random.Generator], Maps]:
    return lambda _: maps


POLICY_FREE: dict[str, Callable[[np.random.Generator], Maps]] = {
    **{
        name: _fixed(policy_free(name))
        for name in ("nearest first", "food first", "near food first", "unlike the average view")
    },
    "food first, scrub last": _fixed(food_less_scrub),
    "the same, with noise that depends on the weights": _fixed(noisy(food_less_scrub, 0.5)),
    "map of an untrained network": of_an_untrained_network,
}
"""Maps that know nothing of the network, by name, as drawn with a generator: none may pass the checks."""
