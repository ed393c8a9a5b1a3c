"""States made of known sparse features, to compare what is found with the truth; a dictionary that rebuilds all."""

from dataclasses import dataclass

import numpy as np

from activation_store.sparse_dictionary import DictionarySource, SparseDictionary

SOURCE = DictionarySource("run", "dump", "0" * 64, "planted", None, "lstm_cell", 100, 10, 2, 0)


@dataclass(frozen=True, eq=False)
class PlantedFeatures:
    """States and what they are made of. B states, U units, F features."""

    states: np.ndarray  # (B, U) float32
    directions: np.ndarray  # of length 1, (F, U)
    strengths: np.ndarray  # of each feature in each state, (B, F)
    centre: np.ndarray  # (U,)

    def cosines(self, decoder: np.ndarray) -> np.ndarray:
        """Return the largest cosine of each true direction with any found one, (F,)."""
        return (self.directions @ decoder.T).max(axis=1)


def planted_features() -> PlantedFeatures:
    """Plant twice as many features as units: each state is a sum of three, with strengths from 1 to 2."""
    random, states, units, features = np.random.default_rng(0), 20_000, 24, 48
    directions = random.standard_normal((features, units))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    chosen = random.permuted(np.tile(np.arange(features), (states, 1)), axis=1)[:, :3]
    strengths = np.zeros((states, features))
    np.put_along_axis(strengths, chosen, random.uniform(1, 2, chosen.shape), axis=1)
    centre = random.standard_normal(units)
    made = centre + strengths @ directions + 0.02 * random.standard_normal((states, units))
    return PlantedFeatures(made.astype(np.float32), directions, strengths, centre)


def axes(layer: str, units: int, *, k: int | None = None) -> SparseDictionary:
    """A dictionary with a feature for each unit, up, and one for each unit, down: all of a state is rebuilt."""
    decoder = np.concatenate([np.eye(units), -np.eye(units)]).astype(np.float32)
    none = np.zeros(2 * units, np.float32)
    source = DictionarySource("run", "dump", "0" * 64, "planted", None, layer, 10, 2, 1, 0)
    centre = np.zeros(units, np.float32)
    return SparseDictionary("topk", k or units, decoder, centre, source, decoder.copy(), none, none)
