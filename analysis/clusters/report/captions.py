"""Captions: what each figure of a run shows, and how to read it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caption:
    """A figure's title, its description for readers who cannot see it, and how to read it."""

    title: str
    shows: str
    reading: str


_PLANES = {
    "umap": "UMAP",
    "tsne": "t-SNE",
    "pca": "two principal components",
    "semantic": "a linear map fitted along with the codes",
}
_DISTANCES = {
    "umap": "It keeps neighbourhoods, not distances or densities: gaps and areas mean little.",
    "tsne": "It keeps neighbourhoods, not distances or densities: gaps, sizes and areas of islands mean little.",
    "semantic": "It is a linear map of the state, so straight lines stay straight; what it leaves out is not visible.",
    "pca": "It keeps distances as far as two components do: the rest of the variance is not visible.",
}


def _of_plane(kind: str) -> dict[str, Caption]:
    plane, distances = _PLANES[kind], _DISTANCES[kind]
    return {
        f"{kind}_scatter.png": Caption(
            "The clusters",
            f"Scatter of all records kept in a plane made by {plane}, coloured by cluster; noise is grey.",
            f"Each point is the hidden state of one agent at one tick. {distances} After eight clusters the colours "
            "come again in darker and then in lighter shades, with another marker.",
        ),
        f"{kind}_metric_scatter.png": Caption(
            "What agents were doing",
            f"The plane once per feature, coloured by the feature's mean around that time (plane made by {plane}).",
            "Yellow is high and dark blue is low. A feature that characterises a cluster should change where the "
            "cluster ends; one that changes smoothly across the whole plane does not characterise any cluster.",
        ),
    }


CAPTIONS = {
    **_of_plane("umap"),
    **_of_plane("tsne"),
    **_of_plane("pca"),
    **_of_plane("semantic"),
    "cluster_features.png": Caption(
        "How clusters differ",
        "Heat map of Cohen's d, one row per cluster and one column per feature.",
        "Blue is lower and red is higher than in random windows of lives, in standard deviations of records. Size is "
        "not certainty: the tables below show which differences survive correction.",
    ),
    "cluster_choices.png": Caption(
        "What agents choose, and where things are",
        "Heat map of the share of each option, one row per cluster and one column per option of a categorical feature.",
        "Numbers are percentages of a cluster's records; colours are differences from the first row, all records. "
        "Frames mark what survives correction given tick and age: without one, a large difference of a small cluster "
        "may be chance.",
    ),
    "pca_pairs.png": Caption(
        "Principal components",
        "Scatters of the first principal components of the activations, in pairs, coloured by cluster.",
        "Clusters that overlap in every pair differ in later components, or not along straight lines at all.",
    ),
    "pca_feature_correlations.png": Caption(
        "Components and features",
        "Pearson's r of each principal component with each feature, and bars of the features' R² from all of them.",
        "R² is cross-validated over whole lives: 0 is no better than the mean. Records of a life resemble each other, "
        "so a single r says little about how sure it is.",
    ),
    "pca_feature_profiles.png": Caption(
        "Features along components",
        "Scatter and binned means of each feature along the three components that it correlates with most.",
        "A line that rises and falls again is a relation that r misses.",
    ),
    "pca_choices.png": Caption(
        "Components and choices",
        "Heat map of eta-square, the share of each principal component's variance that lies between the options.",
        "A dot marks what survives correction given tick and age.",
    ),
    "feature_scatter.png": Caption(
        "Features in pairs",
        "Scatters of every pair of features, coloured by cluster.",
        "If two features are correlated, a cluster that differs in one will also differ in the other.",
    ),
    "umap_pairs.png": Caption(
        "UMAP in more dimensions",
        "Scatters of consecutive dimensions of an embedding in more than two dimensions, coloured by cluster.",
        "Clusters that form one island in every panel are not artefacts of the projection onto a plane.",
    ),
}
"""Captions by file name, in the order of the report."""


def caption_of(name: str) -> Caption:
    """Return the caption of a figure; for an unknown figure, its file name."""
    return CAPTIONS.get(name, Caption(name, f"Figure {name}.", ""))
