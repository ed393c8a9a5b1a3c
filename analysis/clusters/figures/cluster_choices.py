"""What agents of each cluster choose and have around them: a heat map of the shares of options."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from analysis.clusters.summary import ClusterSummary, FeatureEffect
from analysis.figures.style import EFFECT_MAP, new_figure, style, title

_CLUSTERS_AT_MOST = 60
_OPTIONS_IN_A_BAND = 30
_RARE = 0.02
_INCHES_AN_OPTION, _INCHES_A_ROW = 0.42, 0.3
_LARGEST_DIFFERENCE = 50  # percentage points
_DARK_CELL = 30


def cluster_choices(clusters: tuple[ClusterSummary, ...], heading: str) -> Figure | None:
    """Draw the share of each option in each cluster, coloured by its difference from the share in all records.

    The first row shows all records. A frame marks differences that survive given tick and age. Options that are rare
    everywhere are left out; many options are split into bands, one below the other.

    Args:
        clusters: largest first.
        heading: what the figure shows, for its title.

    Returns:
        None if there are no clusters or no option that is not rare.
    """
    shown = clusters[:_CLUSTERS_AT_MOST]
    table = [[effect for effect in cluster.effects if effect.choice] for cluster in shown]
    columns = [i for i, option in enumerate(zip(*table, strict=True)) if _common(option)]
    if not columns:
        return None
    more = f"; the {len(shown)} largest of {len(clusters):,} clusters" if len(shown) < len(clusters) else ""
    text = (
        "percentage of a cluster's records with each option; colour: difference from all records; framed: survives "
        f"given tick and age; options below {_RARE:.0%} everywhere are left out{more}"
    )
    bands = np.array_split(columns, -(-len(columns) // _OPTIONS_IN_A_BAND))
    with style():
        height = 1.9 + _INCHES_A_ROW * (len(shown) + 1)
        figure = new_figure(3 + _INCHES_AN_OPTION * len(bands[0]), len(bands) * height)
        panels = figure.subplots(len(bands), squeeze=False).ravel()
        panels[0].set_title(title(heading, text, 110), pad=10)
        for axes, band in zip(panels, bands, strict=True):
            image = _draw(axes, [[row[i] for i in band] for row in table])
            axes.set_yticks(range(len(shown) + 1), ["all records", *map(_describe, shown)])
        label = "percentage points from all records"
        figure.colorbar(image, ax=panels, extend="both", label=label, fraction=0.03, pad=0.02, aspect=30)
    return figure


def _common(option: tuple[FeatureEffect, ...]) -> bool:
    return max(option[0].overall_mean, *(effect.mean for effect in option)) >= _RARE


def _draw(axes: Axes, table: list[list[FeatureEffect]]) -> AxesImage:
    shares = 100 * np.array([[effect.overall_mean for effect in table[0]], *([e.mean for e in row] for row in table)])
    differences = shares - shares[0]
    limit = _LARGEST_DIFFERENCE
    image = axes.imshow(np.clip(differences, -limit, limit), cmap=EFFECT_MAP, vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        colour = "white" if abs(differences[row, column]) > _DARK_CELL else "black"
        axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=8, color=colour)
        if row and table[row - 1][column].survives_given_time:
            frame = [column - 0.46, column + 0.46, column + 0.46, column - 0.46, column - 0.46]
            axes.plot(frame, [row - 0.44, row - 0.44, row + 0.44, row + 0.44, row - 0.44], color="black", lw=1.2)
    axes.set_xticks(range(shares.shape[1]), [effect.name for effect in table[0]], rotation=40, ha="right",
                    rotation_mode="anchor")  # fmt: skip
    kinds = [effect.choice for effect in table[0]]
    for place in (i for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]):
        axes.axvline(place - 0.5, color="black", lw=0.8)
    axes.axhline(0.5, color="black", lw=0.8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _describe(cluster: ClusterSummary) -> str:
    return f"cluster {cluster.label}  (n = {cluster.records:,})"
