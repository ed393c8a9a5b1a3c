"""What all pages share, in a small page of its own in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from analysis.pages import pages
from analysis.pages.pages import BASE, embedded, environment, pack, scripts_of, style_of
from tests.browser import opened, said_of_damage, until

TEMPLATE = """{% extends "layout.html" %}
{% import "kit/macros.html" as kit %}
{% block policy %}script-src {{ scripts.allowed }}; img-src data:{% endblock %}
{% block title %}kit{% endblock %}
{% block body %}
<p id="loading">Unpacking…</p>
{{ kit.back() }} {{ kit.play() }} {{ kit.forward() }} {{ kit.to_start() }} {{ kit.to_end() }}
{{ kit.slider("time", 0, "Time") }} {{ kit.clock("time") }} {{ kit.speed((1, 5, 100)) }}
<input type="range" id="other" min="0" max="9" value="5"><input type="search" id="search"><button id="own">own</button>
{{ kit.facts("page-facts", facts) }}
{{ kit.tables("page-content", content) }}
{{ scripts.elements }}
{% endblock %}
"""
OWN = """
class Days extends TimedState {
  get last() { return 40; }
}
let acts = 0;
async function start() {
  const facts = factsIn("page-facts");
  const tables = await tablesIn("page-content", facts.columns);
  const state = new Days(null);
  const keys = { "x": () => { acts += 1; } };
  const transport = new Transport(state, { slider: "time", clock: () => `day ${state.at}`, keys });
  state.on(["tick", "playing"], () => transport.draw());
  transport.draw();
  window.made = { state, tables, text: facts.text };
}
begin(start, failing("its days", "make it again"));
"""
HOSTILE = "</script><b>'&"
VALUES = {
    "small": np.array([0, 255, 7], np.uint8),
    "steps": np.array([[5, 4, 300], [-1, 0, 70_000]]),
    "exact": np.array([0.1, np.nan, -1e300]),
    "single": np.array([[1.5, np.inf]], np.float32),
}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    (folder / "template.html").write_text(TEMPLATE)
    (folder / "own.js").write_text(OWN)
    columns, content = pack(VALUES, {"words": [HOSTILE]})
    text = environment(folder).get_template("template.html").render(
        facts=embedded({"columns": columns, "text": HOSTILE}), content=content,
        style=style_of("window", dark="preferred"),
        scripts=scripts_of((*BASE, "canvas.js", "playback.js"), [folder / "own.js"]),
    )  # fmt: skip
    file = folder / "page.html"
    file.write_text(text)
    return file


@pytest.fixture
def page(browser, page_file: Path) -> Iterator:
    with opened(browser, page_file, "window.made !== undefined") as page:
        yield page


def at(page) -> list:
    return page.evaluate("[made.state.at, made.state.playing, byId('clock').textContent, Number(byId('time').value)]")


def test_tables_texts_and_numbers_come_back_as_they_were(page) -> None:
    for name, values in VALUES.items():
        output = page.evaluate(f"Array.from(made.tables.{name}, String)")
        numbers = [float(text.replace("Infinity", "inf")) for text in output]
        np.testing.assert_array_equal(numbers, values.ravel())
    assert page.evaluate("[made.text, made.tables.words[0]]") == [HOSTILE, HOSTILE]
    assert page.evaluate("document.getElementById('page-content')") is None
    assert page.evaluate("[0, 1, 2, 4].map((place) => partAt(running([2, 2, 1]), place))") == [0, 0, 1, 2]
    said = "signed(-0.256), signed(3, 0), rounded(-1234.5), rounded(0.00012344), signed(NaN), rounded(1 / 0)"
    assert page.evaluate(f"[{said}]") == ["−0.26", "+3", "−1230", "+0.000123", "–", "–"]
    assert page.evaluate("[counted(1, 'life', 'lives'), counted(2000, 'tick')]") == ["1 life", "2,000 ticks"]
    short = page.evaluate("[1023, -0.0012345, 1e9 + 0.5, -1 / 0, null].map((value) => shortNumber(value, 3))")
    assert short == ["1023", "−0.00123", "1000000000", "−∞", "n/a"]
    assert page.evaluate("[0.00099, 0.001, 1, NaN].map(probability)") == ["<0.001", "0.001", "1.000", "n/a"]
    points = page.evaluate(
        """() => {
          const points = [];
          const context = { beginPath() {}, stroke() {}, lineTo: (...point) => points.push(point) };
          const place = { x: (tick) => 2 * tick, low: 0, high: 10, top: 1, bottom: 11 };
          drawLine(context, Float32Array.of(0, NaN, 10), { ...place, colour: "red" });
          return [points, ends(Float32Array.of(3, NaN, -2))];
        }"""
    )
    assert points == [[[0, 11], [4, 1]], [-2, 3]]


def test_buttons_keys_and_slider_move_time_but_not_in_what_is_focused(page) -> None:
    for act, expected in (
        (lambda: page.keyboard.press("ArrowRight"), 1), (lambda: page.keyboard.press("Shift+ArrowRight"), 11),
        (lambda: page.locator("#back").click(), 10), (lambda: page.locator("#time").fill("33"), 33),
        (lambda: page.keyboard.press("ArrowLeft"), 32), (lambda: page.locator("#to-end").click(), 40),
        (lambda: page.locator("#forward").click(), 40), (lambda: page.keyboard.press("Home"), 0),
        (lambda: page.keyboard.press("ArrowLeft"), 0), (lambda: page.keyboard.press("End"), 40),
    ):  # fmt: skip
        act()
        assert at(page) == [expected, False, f"day {expected}", expected]
    page.keyboard.press("X")
    page.keyboard.press("Control+x")
    assert page.evaluate("acts") == 1
    page.locator("#other").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("[made.state.at, Number(byId('other').value)]") == [40, 6]
    page.locator("#search").focus()
    page.keyboard.type("x ")
    page.keyboard.press("Home")
    page.locator("#own").focus()
    page.keyboard.press("Space")
    assert page.evaluate("[acts, made.state.at, made.state.playing]") == [1, 40, False]


def test_time_plays_to_its_end_and_begins_again(page) -> None:
    page.select_option("#speed", "100")
    page.locator("#play").click()
    until(page, "made.state.at === 40 && !made.state.playing")
    assert page.locator("#play").get_attribute("aria-label") == "Play"
    page.select_option("#speed", "1")
    page.locator("#play").click()
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    assert page.evaluate("made.state.at") < 3
    page.locator("#forward").click()
    assert not page.evaluate("made.state.playing")


def test_time_does_not_run_twice_as_fast_after_a_short_pause(page) -> None:
    """Each start asks for frames of its own; those of earlier starts must stop."""
    counts = page.evaluate(
        """async () => {
          let advances = 0, frames = 0;
          const { state } = made;
          state.advance = () => { advances += 1; };
          for (let i = 0; i < 5; i++) { state.setPlaying(true); state.setPlaying(false); }
          state.setPlaying(true);
          while (frames < 10) { await new Promise((next) => requestAnimationFrame(next)); frames += 1; }
          return [advances, frames];
        }"""
    )
    assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(244, 246, 248)"), ("dark", "rgb(21, 24, 28)")])
def test_colours_are_those_of_the_readers_system(browser, page_file: Path, scheme: str, ground: str) -> None:
    with opened(browser, page_file, "window.made !== undefined", color_scheme=scheme) as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        assert page.evaluate("styled('ground')") == {"light": "#f4f6f8", "dark": "#15181c"}[scheme]


def test_a_damaged_page_says_what_to_do(browser, page_file: Path, tmp_path: Path) -> None:
    text = said_of_damage(browser, page_file, "page-content", tmp_path, left=20)
    assert text.startswith("This page cannot show its days: ") and text.endswith("the file is damaged: make it again.")


def test_pages_take_their_colours_from_the_kit() -> None:
    """A colour that has a name is written by that name in the pages' own styles."""
    base = (Path(pages.__file__).parent / "kit" / "base.css").read_text()
    named = {line.split(":")[1].strip(" ;") for line in base.splitlines() if line.startswith("  --") and "#" in line}
    own = list(Path(pages.__file__).parents[1].rglob("style.css"))
    assert len(own) >= 6 and len(named) > 12
    for path in own:
        used = {word.strip(";)}") for word in path.read_text().split() if word.startswith("#") and len(word) >= 6}
        assert not used & (named - {"#ffffff"}), path
