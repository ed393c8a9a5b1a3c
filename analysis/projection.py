"""Lower-dimensional views of activations."""

import warnings

import numpy as np

from user_error import UserError


def umap_embedding(
    activations: np.ndarray, neighbors: int, min_dist: float, seed: int, dimensions: int = 2
) -> np.ndarray:
    """Embed activations with UMAP (McInnes, Healy and Melville 2018, arXiv:1802.03426), Euclidean distances.

    One thread, so that the same seed gives the same embedding.

    Args:
        activations: (B, units).
        neighbors: size of the local neighbourhoods, from 2 to B - 1.
        min_dist: the least distance between embedded points, from 0 to 1.

    Returns:
        (B, dimensions) float32.

    Raises:
        UserError: all activations are the same, so that there is no structure to embed.
    """
    if (activations == activations[0]).all():
        raise UserError("every kept record has the same activation: there is nothing to embed; check the policy")
    import umap

    model = umap.UMAP(n_neighbors=neighbors, min_dist=min_dist, n_components=dimensions, random_state=seed, n_jobs=1)
    with warnings.catch_warnings():
        # Parts that no neighbourhood joins are usual in activations; UMAP then lays them out apart, as it should.
        warnings.filterwarnings("ignore", message="Graph is not fully connected", category=UserWarning)
        return np.asarray(model.fit_transform(activations), np.float32)


def components_explaining(activations: np.ndarray, shares: tuple[float, ...], seed: int) -> dict[float, int]:
    """Count the principal components needed to explain each share of the activations' variance.

    Args:
        activations: (B, units), not all the same.
        shares: each above 0 and below 1.
    """
    from sklearn.decomposition import PCA

    explained = np.cumsum(PCA(random_state=seed).fit(activations).explained_variance_ratio_)
    return {share: int(np.searchsorted(explained, share) + 1) for share in shares}
