"""Dictionaries that are not learnt by gradient descent, as baselines: their features are written by matching pursuit.

PCA and ICA have no more features than the layer has units; k-means has as many as the autoencoder. All get the same k.
"""

import warnings

import numpy as np

from activation_store.sparse_dictionary import DictionaryKind, DictionarySource, SparseDictionary
from user_error import UserError

_ICA_SAMPLE = 20_000
_ICA_STEPS = 200
_VARIANCE_KEPT = 1e-6
_BATCH = 4096
_SMALLEST = 1e-12


def baseline(
    kind: DictionaryKind, states: np.ndarray, features: int, k: int, source: DictionarySource
) -> SparseDictionary:
    """Fit a baseline.

    Args:
        kind: pca, ica or k_means.
        states: to fit to, (B, U) float32.
        features: of k_means; the others have as many as the states have dimensions.
        k: features of a state.
        source: what it is fitted to; its seed is used.

    Raises:
        UserError: there are fewer features than k.
    """
    centre = states.mean(axis=0, dtype=np.float64)
    if kind == "k_means":
        atoms = _k_means(states, centre, features, source.seed)
    else:
        atoms = _ica(states, centre, source.seed) if kind == "ica" else _principal(states, centre)[1]
    atoms = atoms[np.linalg.norm(atoms, axis=1) > _SMALLEST]
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return SparseDictionary(kind, min(k, len(atoms)), atoms.astype(np.float32), centre.astype(np.float32), source)


def _principal(states: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return variances, descending, and components, (D,) and (D, U), of dimensions that vary at all."""
    total = np.zeros((states.shape[1],) * 2)
    for start in range(0, len(states), _BATCH):
        chunk = states[start : start + _BATCH] - centre
        total += chunk.T @ chunk
    values, vectors = np.linalg.eigh(total / len(states))
    kept = values > _VARIANCE_KEPT * values[-1]
    if not values[-1] > 0:
        raise UserError("the layer has the same state in every record, so it has no features")
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _ica(states: np.ndarray, centre: np.ndarray, seed: int) -> np.ndarray:
    """Return the directions along which independent components add to the states, (D, U)."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    values, vectors = _principal(states, centre)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(states))[:_ICA_SAMPLE])
    white = (states[chosen] - centre) @ (vectors / np.sqrt(values)[:, None]).T  # (N, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best found after many steps will do as a baseline
        found = FastICA(whiten=False, max_iter=_ICA_STEPS, random_state=seed).fit(white)
    return found.mixing_.T @ (vectors * np.sqrt(values)[:, None])


def _k_means(states: np.ndarray, centre: np.ndarray, features: int, seed: int) -> np.ndarray:
    """Return the directions from the centre to the centres of clusters, (features, U)."""
    from sklearn.cluster import MiniBatchKMeans

    centred = (states - centre).astype(np.float32)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), _SMALLEST)
    found = MiniBatchKMeans(features, batch_size=_BATCH, n_init=1, random_state=seed).fit(centred)
    return found.cluster_centers_.astype(np.float64)
