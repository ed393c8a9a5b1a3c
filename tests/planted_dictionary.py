"""A dictionary of sparse features that rebuilds every state exactly."""

import numpy as np

from activation_store.sparse_dictionary import DictionarySource, SparseDictionary


def axes(layer: str, units: int, *, k: int | None = None) -> SparseDictionary:
    """A dictionary with a feature for each unit, up, and one for each unit, down: all of a state is rebuilt."""
    decoder = np.concatenate([np.eye(units), -np.eye(units)]).astype(np.float32)
    none = np.zeros(2 * units, np.float32)
    source = DictionarySource("run", "dump", "0" * 64, "planted", None, layer, 10, 2, 1, 0)
    centre = np.zeros(units, np.float32)
    return SparseDictionary("topk", k or units, decoder, centre, source, decoder.copy(), none, none)
