"""One self-contained offline page for exploring a clustering by density."""

from pathlib import Path

from analysis.clusters.clustering import Clustering
from analysis.clusters.dataset import Dataset
from analysis.clusters.dendrogram.content import COLOURS, POINTS_AT_MOST, page_content
from analysis.clusters.projection import Projection
from analysis.clusters.tree import cluster_tree
from analysis.figures.style import NOISE_COLOUR, cluster_colour
from analysis.pages.packing import embedded, pack
from analysis.pages.pages import BASE, environment, scripts_of, style_of

_HERE = Path(__file__).parent


def dendrogram_page(projection: Projection, clustering: Clustering, clustered_in: str, data: Dataset, seed: int) -> str:
    """Return the page as HTML.

    Args:
        projection: B records in the plane.
        clustered_in: description of the space in which the clusters were found.
        data: with the features of the same records.
        seed: of the sample of points, if there are too many to show.
    """
    from plotly.offline import get_plotlyjs

    tree = cluster_tree(clustering.tree)
    facts, tables = page_content(projection, clustering, tree, data, seed)
    packed = pack(tables, {})
    facts |= {
        "columns": packed.columns,
        "axes": projection.axes,
        "colours": [cluster_colour(i) for i in range(COLOURS)],
        "noiseColour": NOISE_COLOUR,
    }
    page = environment(_HERE).get_template("template.html")
    return page.render(
        heading=data.heading,
        clustered_in=clustered_in,
        records=len(data),
        shown=min(len(data), POINTS_AT_MOST),
        clusters=len(tree),
        facts=embedded(facts),
        content=packed.content,
        style=style_of("window", _HERE),
        scripts=scripts_of(BASE, [_HERE / "explorer.js"], [get_plotlyjs()]),
    )
