"""Make the pictures of docs/ anew from the shipped policies.

    python docs/make_images.py WORK            # records, analyses, draws, and takes pictures of pages: half an hour
    python docs/make_images.py WORK --memory   # those of docs/dynamics.md, saliency.md and sparse_features.md as well
    python docs/make_images.py WORK --probes   # those of docs/probes.md as well: hours
    python docs/make_images.py WORK --cue      # the film of docs/findings/cue.md as well: its study takes an hour

WORK keeps dumps and results. A step whose result is there already is not repeated.
"""

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from analysis.replays.replay import Entities

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
POLICY = "start_kit_3M"
BODIES = ("masked_3M", "seeing_3M")
PROBE_LAYERS = "encoder_output,lstm_hidden,lstm_cell,action_decoder"
WINDOW = (1400, 860)
MIXED = ("hybrid_10M", "start_kit_3M", "takeru_10M", "yaofeng_10M")
FOLLOWED_AT = 60
A_FIGHTER = """() => window.replay.agents.filter(({ alive, row, col }) => alive && Math.hypot(row - 80, col - 80) < 55)
  .sort((one, other) => other.kills - one.kills || other.inflicted - one.inflicted)[0].id"""
"""The agent that a picture of a replay follows, at a tick: one far from the map's edges that has fought the most."""
EVENT = "distance_to_npc <= 2"
CLEAREST, FAILURES = 7, 3
"""Cards of sparse features that are shown: the clearest ones, and the most common ones that mean nothing."""
SWAPPED_IN, FILMED_UNTIL, HELD = 20, 60, 12
"""Ticks of the film of swapped goals, and for how many pictures it stands still at its end."""
NORTHERN, SOUTHERN = "#1f6fb4", "#d9720f"
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
    replay(work / "replay")
    if "--memory" in sys.argv[2:]:
        dynamics(work / "memory")
        saliency(work / "memory")
        sparse_features(work / "sparse")
    if "--cue" in sys.argv[2:]:
        cue(work / "cue")
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
    shrink(run / "cluster_choices.png", IMAGES / "cluster_choices.png")
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


def replay(work: Path) -> None:
    """Let four shipped policies share a world, and show the page of it, following one agent; film one policy's."""
    folder = work / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*MIXED, POLICY):
        shutil.copy(ROOT / "policies" / f"{name}.safetensors", folder)
    shared, alone = folder / "seed_1.replay.lzma", folder / f"seed_1_{POLICY}.replay.lzma"
    stage(shared, "train.py", "-m", "replay", "-p", folder, "--train.seed", 1)
    stage(alone, "train.py", "-m", "replay", "-p", folder, "-n", POLICY, "--train.seed", 1, "--env.horizon", 400)
    page_file = work / "four_policies.html"
    stage(page_file, "render_replay.py", shared, "-o", page_file)
    with opened(page_file, (1280, 800)) as page:
        page.wait_for_function("window.replay !== undefined")
        page.fill("#scrub", str(FOLLOWED_AT))
        page.wait_for_timeout(500)
        page.fill("#search", str(page.evaluate(A_FIGHTER)))
        page.keyboard.press("Enter")
        page.fill("#search", "")
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / "replay_viewer.png")
    film = work / "play.gif"
    stage(film, "render_replay.py", alone, "-o", film, "--follow", 83, "--start", 17, "--end", 107, "--radius", 11,
          "--size", 420, "--fps", 8)  # fmt: skip
    shutil.copyfile(film, IMAGES / film.name)


def shrink(picture: Path, to: Path) -> None:
    """Store a large figure with few colours, in a third of its size."""
    from PIL import Image

    with Image.open(picture) as whole:
        few = whole.convert("RGB").quantize(96, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(to, optimize=True)


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
    stage(
        work / "one_life", "agent_life_visualization.py", dump, "--cluster-dir", run, "--output-dir", work / "one_life"
    )
    stage(work / "phases", "cluster_life_phase.py", dump, "--cluster-dir", run, "--output-dir", work / "phases")
    (life,) = work.glob("one_life/**/life_*.png")
    (by_tick,) = work.glob("phases/**/life_tick.png")
    shutil.copyfile(life, IMAGES / "life.png")
    shutil.copyfile(by_tick, IMAGES / "life_tick.png")


def dynamics(work: Path) -> None:
    """Study how the memory moves."""
    dump = whole_dump(work)
    run = work / "results" / f"{POLICY}-lstm_cell-dynamics"
    stage(run, "analyze_dynamics.py", dump, "--features", "extended", "--output-dir", run.parent)
    for name in ("memory_length", "fixed_points"):
        shutil.copyfile(run / f"{name}.png", IMAGES / f"dynamics_{name}.png")


def saliency(work: Path) -> None:
    """Attribute the value: on average, before and after an event, and tick by tick on the page."""
    dump, results = whole_dump(work), work / "results"
    run = results / f"{POLICY}-saliency-value-gradient"
    stage(run, "saliency.py", dump, "--output-dir", results)
    for name in ("overview", "sanity"):
        shutil.copyfile(run / f"{name}.png", IMAGES / f"saliency_{name}.png")
    around = results / "event"
    directions = results / f"{POLICY}-lstm_cell-dynamics" / "directions.safetensors"
    stage(around, "saliency.py", dump, "--event", EVENT, "--samples", 100, "--ticks", 20, "--lags", 0, "--components",
          "ic", "--directions", directions, "--name", around.name, "--output-dir", results)  # fmt: skip
    for name in ("event", "components"):
        shutil.copyfile(around / f"{name}.png", IMAGES / f"saliency_{name}.png")
    with opened(run / "saliency.html", (1120, 860)) as page:
        page.wait_for_selector("body[data-ready=true]")
        page.focus("#view")
        for _ in range(12):
            page.keyboard.press("ArrowRight")
        box = page.locator("#view").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 260)
        page.screenshot(path=IMAGES / "saliency_page.png")


def sparse_features(work: Path) -> None:
    """Write the cell as sparse features, and show ten of them, those that mean nothing included."""
    dump = work / "activation_data" / POLICY
    stage(dump, "extract_activations.py", "pve", "-p", POLICY, "-n", 8, "--format", "parquet", "--layers", "all",
          "--untrained-twin", "--fields", "Market,Task,ActionTargets", "-o", dump.parent)  # fmt: skip
    run = work / "results" / f"{POLICY}-sparse"
    stage(run, "train_sparse_autoencoder.py", dump, "--width", "4x,8x", "--k", "8,32", "--kind",
          "topk,batch_topk,jumprelu,matryoshka", "--untrained", "--erase", "tick,self_food,self_health", "--no-track",
          "--output-dir", run.parent)  # fmt: skip
    for name in ("reconstruction", "attribution"):
        shutil.copyfile(run / f"{name}.png", IMAGES / f"sparse_{name}.png")
    with opened(run / "sparse_features.html", (1300, 900)) as page:
        page.wait_for_selector("article")
        pictures = [card.screenshot() for card in page.locator("article:not(.plain)").all()[:CLEAREST]]
        page.select_option("#sort", "density")
        pictures += [card.screenshot() for card in page.locator("article.plain").all()[:FAILURES]]
        page.select_option("#sort", "r")
        page.fill("#search", "self_health")
        page.locator(".top").first.click()
        page.hover("#life-chart")
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / "sparse_features.png")
    one_below_the_other(pictures, IMAGES / "sparse_ten_features.png")


def whole_dump(work: Path) -> Path:
    """Record four whole episodes with everything that the policy saw and remembered; return the dump."""
    dump = work / "activation_data" / POLICY
    stage(dump, "extract_activations.py", "pve", "-p", POLICY, "-n", 4, "--format", "parquet", "--layers", "all",
          "--fields", "Market,Task,ActionTargets", "-o", dump.parent)  # fmt: skip
    return dump


def one_below_the_other(pictures: Sequence[bytes], path: Path) -> None:
    """Join PNG pictures into one."""
    from PIL import Image

    images = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
    joined = Image.new("RGB", (max(image.width for image in images), sum(image.height for image in images)), "white")
    top = 0
    for image in images:
        joined.paste(image, (0, top))
        top += image.height
    joined.quantize(256).save(path, optimize=True)


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


def cue(work: Path) -> None:
    """Play the study of a goal that must be remembered, and film the agents whose goal is swapped."""
    swap = work / "cue" / "swap_cue_lstm_2"
    stage(swap, "study.py", "studies/cue.yaml", "--results-dir", work, "--pages-dir", work / "pages")
    film_of_ways(swap, IMAGES / "cue.gif")


def film_of_ways(run: Path, path: Path) -> None:
    """Film where the edited agents of one episode go from the place of the edit on, with and without it.

    Args:
        run: of intervene.py, with the goal exchanged in `SWAPPED_IN` alone.
    """
    import imageio.v3 as imageio
    import matplotlib.pyplot as plt
    import pyarrow.parquet as parquet

    from analysis.figures.style import style
    from analysis.replays.file import read_replay

    lives = [life for life in parquet.read_table(run / "lives.parquet").to_pylist() if life["edited"]]
    towards = {
        life["agent"]: life["towards_goal"] for life in lives if (life["arm"], life["episode"]) == ("unedited", 0)
    }
    arms = {"unedited": "as they are", "edited": f"goal swapped once, in tick {SWAPPED_IN}"}
    replays = {arm: read_replay(run / f"{arm}.replay.lzma").players for arm in arms}
    whole = replays["unedited"]
    south = {  # which side the goal is, from how far an unedited path leads towards it
        agent: float(np.sign(towards[agent]) * np.sign(_way(whole, agent, FILMED_UNTIL)[-1, 1]))
        for agent in towards
        if np.isfinite(towards[agent])
    }
    frames = []
    with style():
        for tick in range(SWAPPED_IN, FILMED_UNTIL):
            figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.9), dpi=100, sharey=True, layout="constrained")
            for axes, (arm, what) in zip(panels, arms.items(), strict=True):
                axes.set(xlim=(-25, 25), ylim=(32, -32), title=what, xlabel="tiles east", aspect="equal")
                axes.axhline(0, color="#bbbbbb", lw=0.8, zorder=0)
                for agent, side in south.items():
                    way = _way(replays[arm], agent, tick)
                    colour = NORTHERN if side < 0 else SOUTHERN
                    axes.plot(way[:, 0], way[:, 1], color=colour, lw=1.2, alpha=0.8)
                    axes.plot(*way[-1], "o", color=colour, ms=4)
            panels[0].set_ylabel("tiles south")
            figure.suptitle(f"told to go north (blue) or south (orange); tick {tick}", fontsize=10)
            figure.canvas.draw()
            frames.append(np.asarray(figure.canvas.buffer_rgba())[:, :, :3])  # type: ignore[attr-defined]
            plt.close(figure)
    imageio.imwrite(path, [*frames, *[frames[-1]] * HELD], duration=120, loop=0)


def _way(players: "Entities", agent: int, until: int) -> np.ndarray:
    """Return how many tiles an agent is east and south of its place in the tick of the edit, while it lives, (T, 2)."""
    column = players.ids.tolist().index(agent)
    ticks = np.flatnonzero(players.alive[SWAPPED_IN : until + 1, column]) + SWAPPED_IN
    place = np.stack([players.col[ticks, column], players.row[ticks, column]], axis=1)
    return place - place[0] if len(place) else np.zeros((1, 2))


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
def opened(page_file: Path, window: tuple[int, int] = WINDOW) -> "Iterator[Page]":
    """Open a page in headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": window[0], "height": window[1]})
        page.set_default_timeout(PATIENCE)
        page.goto(page_file.as_uri())
        yield page
        browser.close()


if __name__ == "__main__":
    main()
