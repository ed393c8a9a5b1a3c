"""report.html: every run has one, it opens offline, and its numbers equal those of summary.json."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tyro

from analysis.clusters.outputs import CAPTIONS, command_of, report_html
from analysis.clusters.settings import AnalysisSettings
from common.files import write_json
from common.number_text import share_text
from tests.analysed import Analysed
from tests.browser import opened, scripts_that_ran

HOSTILE = "</script><img src=x onerror=document.title='hacked'><b>&'\""
UNFOLD = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"


@pytest.fixture(scope="module")
def summary(analysed: Analysed) -> dict[str, Any]:
    return json.loads((analysed.run / "summary.json").read_text())


@pytest.fixture
def page(browser, analysed: Analysed) -> Iterator:
    with opened(browser, analysed.run / "report.html") as page:
        page.evaluate(UNFOLD)
        yield page


def number(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "n/a"
    return f"{round(value, 2) + 0.0:+.2f}" if sign else f"{round(value, 2) + 0.0:.2f}"


def p_value(value: float | None) -> str:
    return "n/a" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def cells(row) -> list[str]:
    return [" ".join(text.split()) for text in row.locator("td").all_inner_texts()]


def test_verdict_figures_confounds_and_stability_are_those_of_the_summary(
    page, summary: dict[str, Any], analysed: Analysed
) -> None:
    assert page.locator("#verdict li").all_inner_texts() == summary["verdict"]
    assert page.locator("h2").first.inner_text() == "Verdict"
    figures = sorted(path.name for path in analysed.run.glob("*.png"))
    output = "Array.from(document.images, ({ naturalWidth, alt, src }) => [naturalWidth, alt, src.slice(0, 14)])"
    images = page.evaluate(output)
    assert len(images) == len(figures) >= 3 and set(figures) <= set(CAPTIONS)
    assert all(width > 100 and len(alt) > 30 and source == "data:image/png" for width, alt, source in images)
    captions = page.locator("figcaption").all_inner_texts()
    for name in figures:
        assert any(CAPTIONS[name][2] in caption for caption in captions)
    rows = {"all": summary["confounds"], **{str(c["label"]): c["confounds"] for c in summary["clusters"]}}
    for label, confounds in rows.items():
        output = cells(page.locator(f"#confounds tr[data-cluster='{label}']"))
        for text, confound in zip(output, confounds, strict=True):
            if confound["reason"]:
                assert text == "n/a"
                continue
            shares = f"{share_text(confound['share'])} chance {share_text(confound['chance'])}"
            assert text.startswith(f"{shares} q {p_value(confound['q'])}")
            assert ("FLAGGED" in text) == confound["flagged"]
    stability = page.locator("#stability").inner_text()
    for name in ("over_seeds", "over_embeddings", "over_bootstraps"):
        assert summary["stability"][name] and ", ".join(map(number, summary["stability"][name])) in stability
    assert f"DBCV {number(summary['validity']['dbcv'])} on {summary['validity']['records']:,} records" in stability


def test_sections_fold_but_on_paper_and_links_unfold_them(browser, analysed: Analysed, summary: dict[str, Any]) -> None:
    with opened(browser, analysed.run / "report.html") as page:
        page.emulate_media(media="print")
        assert page.locator("#reproduce").is_visible() and not page.locator("nav").is_visible()
        page.emulate_media(media="screen")
        folded = page.evaluate("document.documentElement.scrollHeight")
        targets = [link.get_attribute("href") for link in page.locator("nav a").all()]
        assert targets == [f"#{section.get_attribute('id')}" for section in page.locator(".section > div").all()]
        last = f"#cluster-{summary['clusters'][-1]['label']}"
        for target in ("#reproduce", last):
            assert not page.locator(target).is_visible()
            page.locator(f"a[href='{target}']").click()
            page.locator(target).wait_for()
            heading = page.locator(f"summary:has(+ {target})").bounding_box()
            assert 0 <= heading["y"] < page.viewport_size["height"]
        page.evaluate(UNFOLD)
        assert page.evaluate("document.documentElement.scrollHeight") > 2 * folded


def test_clusters_and_effects_are_those_of_the_summary(page, summary: dict[str, Any]) -> None:
    assert len(summary["clusters"]) > 2
    for cluster in summary["clusters"]:
        output = cells(page.locator(f"#clusters tr[data-cluster='{cluster['label']}']"))
        assert output[0] == cluster["description"]
        assert output[1] == f"{cluster['records']:,} {cluster['share']:.1%}" and output[2] == f"{cluster['lives']:,}"
        assert output[4:6] == [number(cluster["jaccard"]), number(cluster["dbcv"])]
    for cluster in (summary["clusters"][0], summary["clusters"][-1]):
        table = page.locator(f"table[data-effects='{cluster['label']}']")
        for effect in cluster["effects"]:
            output = cells(table.locator(f"tr[data-feature='{effect['name']}']"))
            assert output[:2] == [number(effect["mean"]), number(effect["complement_mean"])]
            for text, name in ((output[2], "d_complement"), (output[3], "d_baseline")):
                ends = [number(effect[f"{name}_{end}"], sign=True) for end in ("low", "high")]
                interval = "" if "n/a" in ends else f" [{ends[0]}, {ends[1]}]"
                assert text == number(effect[name], sign=True) + interval
            assert output[4:6] == [p_value(effect["p"]), p_value(effect["q"])]
            assert ("survives" in output[8]) == effect["survives"]
            assert ("survives" in output[9]) == effect["survives_given_time"]
        order = [row.get_attribute("data-feature") for row in table.locator("tbody tr").all()]
        strengths = {effect["name"]: abs(effect["d_complement"] or 0) for effect in cluster["effects"]}
        assert [strengths[name] for name in order] == sorted(strengths.values(), reverse=True)


def test_it_says_how_to_make_it_again(page, analysed: Analysed) -> None:
    run = json.loads((analysed.run / "run.json").read_text())
    command = page.locator("#reproduce pre").inner_text()
    words = shlex.split(command)
    assert words[:3] == ["python", "analyze_activations.py", str(analysed.dump)]
    for name in ("subsample", "hdbscan_min_cluster", "seed", "features"):
        assert words[words.index(f"--{name.replace('_', '-')}") + 1] == str(run["arguments"][name])
    text = page.locator("#reproduce").inner_text()
    for part in (*run["versions"].values(), *run["processor"].values(), *run["input"].values()):
        assert part in text
    again = tyro.cli(AnalysisSettings, args=words[2:])
    again.check()
    output = {name: getattr(again, name) for name in run["arguments"]}
    made = {**run["arguments"], "output_dir": "analysis_results_again"}
    assert {name: str(value) for name, value in output.items()} == {name: str(value) for name, value in made.items()}
    page.locator("#reproduce pre code").click()
    assert page.evaluate("getSelection().toString()").strip() == command.strip()


def test_links_are_of_files_that_are_there_also_when_the_run_has_moved(browser, analysed: Analysed, tmp_path) -> None:
    moved = tmp_path / "it's moved"
    shutil.copytree(analysed.run, moved)
    page = browser.new_page(offline=True)
    page.goto((moved / "report.html").as_uri())
    assert page.locator("header a").count() == 0  # the explorer has not been built
    command = shlex.split(page.locator("header code").inner_text())
    assert command == ["python", "explore.py", f"analysis_results/{analysed.run.name}"]
    for name in ("explorer.html", "dendrogram_explorer.html"):
        (moved / name).write_text("<title>there</title>")
    (moved / "report.html").write_text(report_html(moved))
    page.reload()
    links = [link.get_attribute("href") for link in page.locator("header a").all()]
    assert links == ["explorer.html", "dendrogram_explorer.html"]
    page.get_by_role("link", name="explorer.html", exact=True).click()
    assert page.title() == "there" and page.url.startswith(moved.as_uri())
    page.close()


def test_units_are_named_in_plural_and_commands_are_ready_for_a_shell(analysed: Analysed, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(analysed.run, folder)
    summary = json.loads((folder / "summary.json").read_text())
    for unit, words in (("life", "bootstraps of\n    lives ("), ("episode", "bootstraps of\n    whole episodes (")):
        summary["method"]["unit"] = unit
        summary["components"] = {"features": ["tick"], "explained": [0.5], "r2": [0.1], "unit": unit}
        write_json(folder / "summary.json", summary)
        written = report_html(folder)
        assert words in written
        assert f"Cross-validated over whole {'lives' if unit == 'life' else 'episodes'};" in written
    arguments = {"dump": "a folder/it's", "subsample": 3, "metric_only": True, "umap_pairs": False, "residualize": "",
                 "features": "tick,is_idle", "output_dir": "out", "nothing": None}  # fmt: skip
    assert shlex.split(command_of(arguments)) == [
        "python", "analyze_activations.py", "a folder/it's", "--subsample", "3", "--metric-only", "--features",
        "tick,is_idle", "--output-dir", "analysis_results_again",
    ]  # fmt: skip


def test_hostile_names_are_only_text(browser, analysed: Analysed, tmp_path: Path) -> None:
    folder = tmp_path / "<b>&'run'"
    shutil.copytree(analysed.run, folder)
    summary, run = (json.loads((folder / name).read_text()) for name in ("summary.json", "run.json"))
    summary["policy"] = summary["layer"] = HOSTILE
    summary["verdict"] = [HOSTILE]
    for cluster in summary["clusters"]:
        cluster["description"] = HOSTILE
        for effect in cluster["effects"]:
            effect["name"] = HOSTILE
    run["arguments"]["dump"] = run["arguments"]["features"] = HOSTILE
    run["input"][HOSTILE] = run["versions"][HOSTILE] = run["processor"][HOSTILE] = HOSTILE
    write_json(folder / "summary.json", summary)
    write_json(folder / "run.json", run)
    shutil.copy(next(folder.glob("*.png")), folder / "<img src=x onerror=alert(1)>.png")
    (folder / "report.html").write_text(report_html(folder))
    with opened(browser, folder / "report.html") as page:
        assert HOSTILE in page.locator("h1").inner_text() and HOSTILE in page.locator("#verdict").inner_text()
        assert page.locator("img[src=x], h1 b, #verdict b").count() == 0 and "hacked" not in page.title()


def test_foreign_scripts_do_not_run_and_without_clusters_it_says_so(
    browser, analysed: Analysed, tmp_path: Path
) -> None:
    assert scripts_that_ran(browser, analysed.run / "report.html", tmp_path) == []
    folder = tmp_path / "metric"
    folder.mkdir()
    shutil.copy(analysed.run / "run.json", folder)
    plain = {"policy": "p", "layer": "l", "records": 5, "lives": 2, "clusters": None, "components": None}
    write_json(folder / "summary.json", plain)
    (folder / "report.html").write_text(report_html(folder))
    with opened(browser, folder / "report.html") as page:
        assert "No clusters were looked for" in page.locator("#verdict").inner_text()
        assert page.locator("#effects, #figures").count() == 0


def test_a_phone_and_paper_show_it_whole(browser, analysed: Analysed, summary: dict[str, Any]) -> None:
    with opened(browser, analysed.run / "report.html", width=400) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.pdf()[:5] == b"%PDF-"
