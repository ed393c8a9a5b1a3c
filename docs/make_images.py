"""Make the pictures of docs/ anew from the shipped policies.

    python docs/make_images.py WORK            # records, analyses, draws, and takes pictures of pages: half an hour
    python docs/make_images.py WORK --probes   # those of docs/probes.md as well: hours

WORK keeps dumps and results. A step whose result is there already is not repeated.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
POLICY = "start_kit_3M"
BODIES = ("masked_3M", "seeing_3M")
PROBE_LAYERS = "encoder_output,lstm_hidden,lstm_cell,action_decoder"
WINDOW = (1400, 860)
PATIENCE = 300_000
"""Milliseconds that a page may take."""
A_FIGHT = """() => {
  const { explorer } = window;
  for (let i = 0; i < explorer.count; i += 1) {
    const { tick, own, events } = explorer.point(i);
    if (own && tick > 100 && events.some(({ text }) => text.startsWith("was hit"))) return i;
  }
  return 0;
}"""
"""Finds a point after tick 100 at which the agent was hit."""


def main() -> None:
    """Make the pictures of one topic after the other."""
    work = Path(sys.argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    demo(work / "demo")
    lives(work / "lives")
    if "--probes" in sys.argv[2:]:
        probes(work / "probes")


def demo(work: Path) -> None:
    """Do what `make demo` does with the shipped policy: the README's picture, effect sizes, and the explorer."""
    dump = work / "activation_data" / POLICY
    stage(dump, "extract_activations.py", "pve", "-p", POLICY, "-n", 2, "--max-steps", 300, "--format", "parquet",
          "-o", dump.parent)  # fmt: skip
    run = analysis(work / "analysis_results", dump, "--subsample", 20)
    for name in ("umap_scatter.png", "cluster_features.png"):
        shutil.copyfile(run / name, IMAGES / name)
    stage(run / "explorer.html", "explore.py", run)
    with opened(run / "explorer.html") as page:
        page.wait_for_function("window.explorer !== undefined")
        place = page.evaluate("(i) => window.explorer.placeOf(i)", page.evaluate(A_FIGHT))
        page.mouse.move(place["x"], place["y"])
        page.wait_for_function("window.explorer.hovered !== null")
        page.mouse.click(place["x"], place["y"])
        page.wait_for_function("window.explorer.open !== null")
        page.mouse.move(place["x"], place["y"])
        page.wait_for_timeout(2000)
        page.screenshot(path=IMAGES / "explorer.png")


def lives(work: Path) -> None:
    """Record whole episodes: components, the dendrogram explorer, one life, and phases of life."""
    dump = work / "activation_data" / POLICY
    stage(dump, "extract_activations.py", "pve", "-p", POLICY, "-n", 4, "--format", "parquet", "--layers",
          "action_decoder,lstm_cell", "-o", dump.parent)  # fmt: skip
    run = analysis(work / "components", dump, "--subsample", 10, "--cluster-before-umap", "--dendrogram-explorer")
    shutil.copyfile(run / "pca_feature_correlations.png", IMAGES / "pca_feature_correlations.png")
    with opened(run / "dendrogram_explorer.html") as page:
        page.wait_for_timeout(5000)
        page.screenshot(path=IMAGES / "dendrogram_explorer.png")
    run = analysis(work / "cell", dump, "--subsample", 10, "--layer", "lstm_cell", "--hdbscan-min-cluster", 300,
                   "--hdbscan-min-samples", 20)  # fmt: skip
    stage(work / "one_life", "agent_life_visualization.py", dump, "--cluster-dir", run, "-o", work / "one_life")
    stage(work / "phases", "cluster_life_phase.py", dump, "--cluster-dir", run, "-o", work / "phases")
    (life,) = work.glob("one_life/**/life_*.png")
    (by_tick,) = work.glob("phases/**/life_tick.png")
    shutil.copyfile(life, IMAGES / "life.png")
    shutil.copyfile(by_tick, IMAGES / "life_tick.png")


def probes(work: Path) -> None:
    """Probe the policy that is not shown its body, and its control."""
    dumps = [work / "activation_data" / name for name in BODIES]
    for dump in dumps:
        stage(dump, "extract_activations.py", "pve", "-p", dump.name, "-n", 8, "--format", "parquet", "--precision",
              "float16", "--untrained-twin", "--shadow-networks", "all", "--layers", PROBE_LAYERS,
              "-o", dump.parent)  # fmt: skip
    results = work / "results"
    stage(results / "all", "train_probes.py", *dumps, "--subsample", 8, "--given", "tick", "--name", "all",
          "--output-dir", results)  # fmt: skip
    stage(results / "history", "train_probes.py", *dumps, "--subsample", 8, "--probes", "linear", "--history",
          "4,8,16,32", "--inputs", "lstm_cell,observation,history,traces,reservoir", "--name", "history", "--targets",
          "is_starving,is_starving_or_dehydrated,self_food,self_water,self_health,tick,displacement,self_row",
          "--output-dir", results)  # fmt: skip
    for name in ("summary", "advantage", "increment"):
        shutil.copyfile(results / "all" / f"probe_{name}.png", IMAGES / f"probe_{name}.png")
    shutil.copyfile(results / "history" / "probe_history.png", IMAGES / "probe_history.png")


def analysis(parent: Path, dump: Path, *options: object) -> Path:
    """Analyse a dump; return the run's folder."""
    stage(parent, "analyze_activations.py", dump, *options, "--output-dir", parent)
    (run,) = parent.iterdir()
    return run


def stage(result: Path, script: str, *arguments: object) -> None:
    """Run a script of the toolkit, unless its result is there."""
    if not result.exists():
        subprocess.run([sys.executable, script, *map(str, arguments)], cwd=ROOT, check=True)


@contextmanager
def opened(page_file: Path) -> "Iterator[Page]":
    """Open a page in headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
        page.set_default_timeout(PATIENCE)
        page.goto(page_file.as_uri())
        yield page
        browser.close()


if __name__ == "__main__":
    main()
