"""Embeddings of activations with UMAP and t-SNE."""

import contextlib
import functools
import warnings

import numpy as np


def umap_epochs(records: int) -> int:
    """Return UMAP's default number of epochs for this number of records."""
    return 500 if records <= 10_000 else 200


@functools.cache
def _keep_compiled() -> None:
    """Let numba keep on disk what it compiles of UMAP and of its search for neighbours.

    Both libraries leave these functions to each process, which takes 20 s of a processor, 50 s from 4,096 records on.
    The others there take a function as an argument, which numba cannot keep.
    """
    from pynndescent import kernels
    from pynndescent import utils as neighbours
    from umap import layouts, umap_, utils

    for compiled in (
        utils.fast_knn_indices, umap_.smooth_knn_dist, umap_.compute_membership_strengths,
        layouts._nb_optimize_layout_euclidean_single_epoch, neighbours.build_candidates_owner, neighbours.deheap_sort,
        neighbours.sort_updates_by_block, neighbours.apply_sorted_graph_update_array,
        kernels.generate_graph_update_array_batched,
    ):  # fmt: skip
        with contextlib.suppress(RuntimeError):  # no folder for it can be written to
            compiled.enable_caching()


def umap_embedding(
    activations: np.ndarray, neighbors: int, min_dist: float, seed: int, dimensions: int = 2, epochs: int | None = None
) -> np.ndarray:
    """Embed activations with UMAP (McInnes, Healy and Melville 2018, arXiv:1802.03426), Euclidean distances.

    (B, units), not all the same, to (B, dimensions) float32. Single-threaded, so that the same seed gives the same
    embedding. `epochs` are by default UMAP's own, see `umap_epochs`.

    Args:
        neighbors: size of the local neighbourhoods, from 2 to B - 1.
        min_dist: minimum distance between embedded points, from 0 to 1.
        dimensions: of the embedding, up to B - 2.
    """
    import umap

    _keep_compiled()
    model = umap.UMAP(
        n_neighbors=neighbors, min_dist=min_dist, n_components=dimensions, n_epochs=epochs, random_state=seed, n_jobs=1
    )
    with warnings.catch_warnings():
        # Disconnected parts are common in activations; UMAP correctly places them apart.
        warnings.filterwarnings("ignore", message="Graph is not fully connected", category=UserWarning)
        return np.asarray(model.fit_transform(activations), np.float32)


def tsne_embedding(activations: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """Embed activations in a plane with t-SNE (van der Maaten and Hinton 2008), Barnes-Hut, Euclidean distances.

    (B, units), not all the same, to (B, 2) float32.

    Args:
        perplexity: roughly the number of neighbours per record, below B.
    """
    from sklearn.manifold import TSNE

    model = TSNE(perplexity=perplexity, init="pca", learning_rate="auto", random_state=seed, n_jobs=1)
    return np.asarray(model.fit_transform(activations), np.float32)
