"""Time of an analysis beside bare UMAP and HDBSCAN calls, and beside another HDBSCAN.

    python -m benchmarks.analysis activation_data/start_kit_3M
    python -m benchmarks.analysis activation_data/start_kit_3M --clusterers

The dump's records are copied, episode by episode, until there are enough; copies get a little noise so that no two
records coincide. The whole default analysis runs as users run it; the bare calls (load, embed, cluster) run in a
separate process on the same activations, with the same settings and seed. Both include their imports and are measured
alternately in wall-clock time. `--clusterers` instead compares hdbscan with fast_hdbscan, which is not a dependency of
this project: install it first.
"""

import importlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from activation_store.reader import read_dump, read_metadata
from activation_store.selection import Subsample
from benchmarks.measure import Output, spread, timed
from benchmarks.scale import copied
from common import command_line
from common.user_error import UserError

LAYER = "action_decoder"
BARE = """
import sys, numpy as np, umap, hdbscan
points = umap.UMAP(n_neighbors=15, min_dist=0.1, random_state=42, n_jobs=1).fit_transform(np.load(sys.argv[1]))
hdbscan.HDBSCAN(15, 5, approx_min_span_tree=False, core_dist_n_jobs=1).fit(points.astype(np.float64))
"""


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/analysis.py."""

    dump: tyro.conf.Positional[Path]
    """Dump to copy records from."""
    records: int = 50_000
    """Minimum number of records to time the analysis on, after subsampling (at most every second record is kept)."""
    samples: int = 1
    """Number of times to run each of the two, at least 1."""
    clusterers: bool = False
    """Only compare hdbscan with fast_hdbscan."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if min(arguments.records, arguments.samples) < 1:
        raise UserError("--records and --samples must be at least 1")
    with tempfile.TemporaryDirectory() as scratch:
        measure = compare_clusterers if arguments.clusterers else measure_analysis
        content = measure(arguments, Path(scratch))
    arguments.write(content)


def measure_analysis(arguments: Arguments, scratch: Path) -> dict[str, object]:
    """Time the whole analysis against the bare calls."""
    dump = copied(arguments.dump, scratch / "dump", 2 * arguments.records, "float32")
    subsample = read_metadata(dump).records // arguments.records
    activations = read_dump(dump, subsample=Subsample(subsample), layers=[LAYER]).activations[LAYER]
    np.save(scratch / "activations.npy", activations)
    bare, whole = [], []
    for sample in range(arguments.samples):
        bare.append(seconds("-W", "ignore", "-c", BARE, scratch / "activations.npy"))
        options = ["--subsample", subsample, "--output-dir", scratch / f"results{sample}"]
        whole.append(seconds("analyze_activations.py", dump, *options))
    ratios = [one / other for one, other in zip(whole, bare, strict=True)]
    print(f"records               {len(activations):,}")
    print(f"bare calls, s         {spread(bare, '.1f')}")
    print(f"whole analysis, s     {spread(whole, '.1f')}")
    print(f"ratio                 {spread(ratios, '.2f')}")
    return {"records": len(activations), "bare": bare, "whole": whole, "ratios": ratios}


def seconds(*command: object) -> float:
    """Return the wall-clock seconds of Python with these arguments."""
    words = [sys.executable, *map(str, command)]
    return timed(lambda: subprocess.run(words, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, check=True))[1]


def compare_clusterers(arguments: Arguments, scratch: Path) -> dict[str, object]:
    """Cluster the same points with hdbscan and fast_hdbscan: planted ones, and the dump's own."""
    try:
        fast_hdbscan, imported = timed(lambda: importlib.import_module("fast_hdbscan"))
    except ImportError:
        raise UserError("fast_hdbscan is not installed: pip install fast-hdbscan==0.3.4") from None
    few = np.random.default_rng(0).normal(size=(100, 2))
    _, first = timed(lambda: fast_hdbscan.HDBSCAN().fit(few))
    print(f"fast_hdbscan: import {imported:.1f} s, first call {first:.1f} s")
    agreements = []
    for name, points in point_sets(arguments.dump).items():
        for settings in ((15, 5), (100, 10)):
            agreements.append(compare(name, points, settings))
    return {"import": imported, "first_call": first, "agreements": agreements}


def point_sets(dump: Path) -> dict[str, np.ndarray]:
    """Return the points to cluster: a dump's embedding and its components, and blobs of the same dimensions."""
    from analysis.clusters.components import principal_components
    from analysis.clusters.embeddings import umap_embedding

    activations = read_dump(dump, subsample=Subsample(10), layers=[LAYER]).activations[LAYER]
    sets = {
        "the dump in a UMAP plane": umap_embedding(activations, 15, 0.1, 42).astype(np.float64),
        "the dump in 30 components": principal_components(activations).scores(activations, 30),
    }
    for count, dimensions in ((10_000, 2), (50_000, 2), (200_000, 2), (10_000, 30)):
        sets[f"{count:,} planted in {dimensions}-d"] = blobs(count, dimensions)
    return sets


def blobs(count: int, dimensions: int, clusters: int = 12) -> np.ndarray:
    """Draw points from Gaussians of several sizes and widths, some of them overlapping."""
    rng = np.random.default_rng(0)
    centres, widths = rng.uniform(-20, 20, (clusters, dimensions)), rng.uniform(0.3, 2, clusters)
    which = rng.choice(clusters, count, p=rng.dirichlet(np.full(clusters, 3.0)))
    return centres[which] + rng.normal(size=(count, dimensions)) * widths[which][:, None]


def compare(name: str, points: np.ndarray, settings: tuple[int, int]) -> dict[str, object]:
    """Cluster the same points with both, print a line, and return the numbers: of hdbscan, then of fast_hdbscan.

    Args:
        settings: minimum cluster size and minimum samples.
    """
    import fast_hdbscan
    import hdbscan
    from sklearn.metrics import adjusted_rand_score

    smallest, samples = settings
    exact = hdbscan.HDBSCAN(smallest, samples, approx_min_span_tree=False, core_dist_n_jobs=1)
    slow, slow_seconds = timed(lambda: exact.fit_predict(points))
    other = fast_hdbscan.HDBSCAN(min_cluster_size=smallest, min_samples=samples)
    fast, fast_seconds = timed(lambda: other.fit_predict(points))
    clusters, agreement = (int(slow.max()) + 1, int(fast.max()) + 1), float(adjusted_rand_score(slow, fast))
    print(
        f"{name}, smallest {smallest}, samples {samples}: {slow_seconds:.1f} against {fast_seconds:.1f} s, "
        f"{clusters[0]} against {clusters[1]} clusters, adjusted Rand index {agreement:.3f}"
    )
    seconds = (slow_seconds, fast_seconds)
    return {"points": name, "settings": settings, "seconds": seconds, "clusters": clusters, "adjusted_rand": agreement}


if __name__ == "__main__":
    command_line.run(main)
