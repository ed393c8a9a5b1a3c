"""Cost of an analysis: compared with bare UMAP and HDBSCAN calls, in memory, and with another HDBSCAN.

    python -m benchmarks.analysis activation_data/start_kit_3M
    python -m benchmarks.analysis activation_data/start_kit_3M --clusterers

The dump's records are copied, episode by episode, until there are enough; copies get a little noise so that no two
records coincide. The whole default analysis runs as users run it; the bare calls (load, embed, cluster) run in a
separate process on the same activations, with the same settings and seed. Both include their imports and are measured
alternately in wall-clock time; memory is the peak of a process and its children. `--clusterers` instead compares
hdbscan with fast_hdbscan, which is not a dependency of this project: install it first.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import tyro

from activation_store.reader import read_batches, read_dump, read_metadata
from activation_store.records import Records
from activation_store.schema import DumpMetadata
from activation_store.selection import select
from activation_store.subsample import Subsample
from activation_store.writer import DumpWriter
from benchmarks.measure import spread
from common import command_line
from common.files import write_json
from common.user_error import UserError

LAYER = "action_decoder"
NOISE = 0.01
BARE = """
import sys, numpy as np, umap, hdbscan
points = umap.UMAP(n_neighbors=15, min_dist=0.1, random_state=42, n_jobs=1).fit_transform(np.load(sys.argv[1]))
hdbscan.HDBSCAN(15, 5, approx_min_span_tree=False, core_dist_n_jobs=1).fit(points.astype(np.float64))
"""


@dataclass(frozen=True)
class Arguments:
    """Arguments of benchmarks/analysis.py."""

    dump: tyro.conf.Positional[Path]
    """Dump to copy records from."""
    records: int = 50_000
    """Minimum number of records to time the analysis on, after subsampling (at most every second record is kept)."""
    memory_records: int = 300_000
    """Number of records to measure memory on; 0 skips this."""
    samples: int = 1
    """Number of times to run each of the two, at least 1."""
    clusterers: bool = False
    """Only compare hdbscan with fast_hdbscan."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """JSON file to write the result to."""


Costs = dict[str, float]
"""Wall-clock `seconds` and peak memory in `bytes` of one process."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if min(arguments.records, arguments.samples) < 1 or arguments.memory_records < 0:
        raise UserError("--records and --samples must be at least 1, --memory-records at least 0")
    with tempfile.TemporaryDirectory() as scratch:
        measure = compare_clusterers if arguments.clusterers else measure_analysis
        content = measure(arguments, Path(scratch))
    if arguments.output:
        write_json(arguments.output, content)


def measure_analysis(arguments: Arguments, scratch: Path) -> dict[str, object]:
    """Time the whole analysis against the bare calls, then measure its memory."""
    dump = copied(arguments.dump, scratch / "dump", 2 * arguments.records)
    subsample = read_metadata(dump).records // arguments.records
    activations = read_dump(dump, subsample=Subsample(subsample), layers=[LAYER]).activations[LAYER]
    np.save(scratch / "activations.npy", activations)
    bare, whole = [], []
    for sample in range(arguments.samples):
        bare.append(run([sys.executable, "-W", "ignore", "-c", BARE, str(scratch / "activations.npy")]))
        whole.append(run(analysis(dump, scratch / f"results{sample}", subsample)))
    ratios = [one["seconds"] / other["seconds"] for one, other in zip(whole, bare, strict=True)]
    print(f"records               {len(activations):,}")
    print(f"bare calls, s         {spread([timing['seconds'] for timing in bare], '.1f')}")
    print(f"whole analysis, s     {spread([timing['seconds'] for timing in whole], '.1f')}")
    print(f"ratio                 {spread(ratios, '.2f')}")
    content: dict[str, object] = {"records": len(activations), "bare": bare, "whole": whole, "ratios": ratios}
    if arguments.memory_records:
        large = copied(arguments.dump, scratch / "large", arguments.memory_records)
        costs, count = run(analysis(large, scratch / "large_results", subsample=1)), read_metadata(large).records
        print(f"memory of {count:,} records, GB   {costs['bytes'] / 1e9:.2f} ({costs['seconds']:.0f} s)")
        content["large"] = {"records": count, **costs}
    return content


def analysis(dump: Path, results: Path, subsample: int) -> list[str]:
    """Return the command of the default analysis."""
    options = ["--subsample", str(subsample), "--output-dir", str(results)]
    return [sys.executable, "analyze_activations.py", str(dump), *options]


def run(command: list[str]) -> Costs:
    """Run a command to its end and measure its memory and that of its children."""
    started, most = time.perf_counter(), 0
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, memory(psutil.Process(process.pid)))
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return {"seconds": time.perf_counter() - started, "bytes": most}


def memory(process: psutil.Process) -> int:
    """Return the bytes that a process and its children currently use; 0 once it has ended."""
    try:
        return sum(part.memory_info().rss for part in (process, *process.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0


def copied(dump: Path, target: Path, records: int) -> Path:
    """Write a parquet dump of at least `records` records, made of copies of a dump's episodes."""
    metadata = read_metadata(dump)
    if LAYER not in metadata.layers:
        raise UserError(f"{dump} holds no layer {LAYER!r}")
    episodes = 1 + max(int(episode["episode"]) for episode in metadata.episodes)
    copies = -(-records // metadata.records)
    blank = replace(
        metadata, layers={LAYER: metadata.layers[LAYER]}, format="parquet", precision="float32", columns={}, tables={},
        precision_error={}, episodes=[], records=0, lives=0, files={},
    )  # fmt: skip
    with DumpWriter(target, blank) as writer:
        for copy in range(copies):
            for batch in batches(dump, metadata):
                writer.write(disguised(batch, copy, episodes))
        writer.close([{"episode": i, "seed": i, "map": 1} for i in range(copies * episodes)])
    return target


def batches(dump: Path, metadata: DumpMetadata) -> Iterator[Records]:
    """Read a dump with one layer and without optional columns and tables."""
    selection = select(dump, metadata, layers=[LAYER], columns=[], leave_out=["tables"])
    yield from read_batches(dump, metadata, selection)


def disguised(batch: Records, copy: int, episodes: int) -> Records:
    """Return records renumbered as later episodes, with a little noise on their activations."""
    activations = batch.activations[LAYER]
    noise = np.random.default_rng([copy, len(batch)]).normal(size=activations.shape) * activations.std() * NOISE
    shifted = {LAYER: (activations + noise * (copy > 0)).astype(np.float32)}
    return replace(batch, episode=batch.episode + copy * episodes, activations=shifted)


def compare_clusterers(arguments: Arguments, scratch: Path) -> dict[str, object]:
    """Cluster the same points with hdbscan and fast_hdbscan: planted ones, and the dump's own."""
    try:
        started = time.perf_counter()
        import fast_hdbscan
    except ImportError:
        raise UserError("fast_hdbscan is not installed: pip install fast-hdbscan==0.3.4") from None
    imported = time.perf_counter() - started
    started = time.perf_counter()
    fast_hdbscan.HDBSCAN().fit(np.random.default_rng(0).normal(size=(100, 2)))
    first = time.perf_counter() - started
    print(f"fast_hdbscan: import {imported:.1f} s, first call {first:.1f} s")
    agreements = []
    for name, points in point_sets(arguments.dump).items():
        for settings in ((15, 5), (100, 10)):
            agreements.append(compare(name, points, settings))
    return {"import": imported, "first_call": first, "agreements": agreements}


def point_sets(dump: Path) -> dict[str, np.ndarray]:
    """Return the points to cluster: a dump's embedding and its components, and blobs of the same dimensions."""
    from analysis.clusters.components import principal_components
    from analysis.clusters.projection import umap_embedding

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
    slow, slow_seconds = timed(exact.fit_predict, points)
    other = fast_hdbscan.HDBSCAN(min_cluster_size=smallest, min_samples=samples)
    fast, fast_seconds = timed(other.fit_predict, points)
    clusters, agreement = (int(slow.max()) + 1, int(fast.max()) + 1), float(adjusted_rand_score(slow, fast))
    print(
        f"{name}, smallest {smallest}, samples {samples}: {slow_seconds:.1f} against {fast_seconds:.1f} s, "
        f"{clusters[0]} against {clusters[1]} clusters, adjusted Rand index {agreement:.3f}"
    )
    seconds = (slow_seconds, fast_seconds)
    return {"points": name, "settings": settings, "seconds": seconds, "clusters": clusters, "adjusted_rand": agreement}


def timed(call: Callable[[np.ndarray], np.ndarray], points: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a call's result and its wall-clock seconds."""
    started = time.perf_counter()
    return call(points), time.perf_counter() - started


if __name__ == "__main__":
    command_line.run(main)
