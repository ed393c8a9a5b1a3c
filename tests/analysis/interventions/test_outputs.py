"""What is written agrees, is whole and inside the picture; and where two replays of an episode first differ."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from activation_store.interventions import Readability, write_lives
from analysis.interventions.effects.figures import dose_response, effects_figure, kl_by_head, ranking_figure
from analysis.interventions.effects.outcomes import title, title_with_unit
from analysis.interventions.effects.pairs import read_run_file
from analysis.interventions.effects.study import study_effects
from analysis.interventions.effects.text import number
from analysis.interventions.outputs import OUTPUTS, report_run, write_effects
from analysis.interventions.page.page import compare, first_difference
from analysis.replays.replay import Replay
from analysis.statistics.inference import Inference
from common.checked_json import with_checksum
from common.files import write_json
from tests.analysis.figures.test_figures import texts
from tests.command import assert_refuses, rows_of
from tests.planted_interventions import EDIT, RANDOM, Planted, plant, with_followed

PLANTED = Planted({EDIT: {"ticks": -25.0}, RANDOM: {"meals": -0.6}}, doses=(1.0, 2.0), agents=32, edited=16)

ERASED = Readability("edit", "lstm_cell", "self_food", 1000, 0.5, 0.0, None, 0.125)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, write_effects(folder, *with_followed(*plant(PLANTED), 0.5), draws=999, seed=1, erased=[ERASED])


def test_everything_is_written_and_nothing_else_and_files_agree(run: tuple[Path, list[str]]) -> None:
    assert sorted(path.name for path in run[0].iterdir()) == sorted(set(OUTPUTS) - {"ranking.png"})
    (output,) = rows_of(run[0] / "erased.tsv")
    assert output["variable"] == "self_food" and output["states"] == "1000" and output["before"] == "0.5"
    assert output["unedited"] == "" and output["in_play"] == "0.125"
    content = json.loads((run[0] / "effects.json").read_text())
    assert content["summary"] == run[1] and content["settings"]["permutations"] == 999
    ticks = [tick for tick in content["effects"] if tick["outcome"] == "ticks"]
    assert [tick["verdict"] for tick in ticks] == ["effect", "effect"]
    assert set(ticks[0]["effect"]) == {"value", "low", "high"}
    assert ticks[0]["against"][0]["control"] == "random directions"
    for part in ("arms", "at_once", "spillovers", "dose_responses", "persistences", "notes"):
        assert content[part], part
    rows = rows_of(run[0] / "effects.tsv")
    assert not any(None in row or None in row.values() for row in rows), "all rows are as long as the heads"
    measures = [row["measure"] for row in rows]
    for measure, part in (
        ("effect", "effects"), ("at once", "at_once"), ("spillover", "spillovers"), ("slope", "dose_responses"),
    ):  # fmt: skip
        assert measures.count(measure) == len(content[part]) > 0
    first, effect = rows[0], content["effects"][0]
    assert float(first["value"]) == pytest.approx(effect["effect"]["value"], abs=1e-6)
    difference = effect["against"][0]["difference"]["value"]
    assert float(first["random_directions_difference"]) == pytest.approx(difference, abs=1e-6)
    text = "\n".join(run[1])
    assert "8 episodes in each arm, 28 arms, 7,168 lives; 50.0% of agents edited." in text
    assert "Check passed: an arm that edits nothing is identical to its twin." in text
    (line,) = [line for line in run[1] if line.startswith("  ticks lived -2")]
    assert "; q 0.0" in line and "; random directions " in line and "; untrained policy " in line
    assert "undecided: reward (detectable: " in text and "); task progress (" in text
    assert "ticks lived, per unit of dose -2" in text and "falls with every dose" in text
    assert "more probable, in total: Move Stay +0.0" in text and "largest KL by head, in total, nats: Move 0.0" in text


def test_directions_edited_one_by_one_are_ranked_in_text_and_picture(tmp_path: Path) -> None:
    planted = Planted(
        {EDIT: {"ticks": -25.0}}, doses=(None,), agents=32, edited=16, directions={"weak": 0.1, "strong": 2.0},
        in_play={"weak": 1.0, "strong": 1e-4},
    )  # fmt: skip
    table, arms = plant(planted)
    lines = write_effects(tmp_path, table, arms, draws=999, seed=1, through=["heads", "cell"])
    assert lines[1].startswith("Edits act through heads and cell alone")
    assert {path.name for path in tmp_path.iterdir()} == {
        "effects.json", "effects.tsv", "effects_by_episode.tsv", "ranking.png",
    }  # fmt: skip
    assert lines.index("  1. strong") < lines.index("  2. weak")
    assert sum("ticks lived -" in line for line in lines) == 1
    weak = lines[lines.index("  2. weak") :]
    assert any(line.startswith("    undecided: ticks lived (") for line in weak)
    figure = ranking_figure(study_effects(table, arms, Inference(permutations=99, bootstraps=99)))
    assert figure is not None
    shown = texts(figure)
    assert {
        "at once: KL, all heads, in total", "at once: KL, all heads, in play", "ticks lived", "strong", "weak",
        "random directions",
    } <= set(shown)  # fmt: skip
    assert shown.index("strong") < shown.index("weak")
    plain = study_effects(*plant(Planted(agents=4, edited=2)), Inference(permutations=99, bootstraps=99))
    assert ranking_figure(plain) is None


def test_effects_are_means_over_the_episodes_that_are_written(run: tuple[Path, list[str]]) -> None:
    """So means over trainings can be computed again, world by world."""
    means, episodes = (rows_of(run[0] / name) for name in ("effects.tsv", "effects_by_episode.tsv"))
    keys = ("measure", "arm", "dose", "outcome")
    for column in ("value", "twin", "random_directions_value", "random_directions_difference"):
        result: dict[tuple[str, ...], list[float]] = {}
        for row in episodes:
            if row[column]:
                result.setdefault(tuple(row[key] for key in keys), []).append(float(row[column]))
        rows = [row for row in means if row["measure"] in ("effect", "at once") and row[column]]
        wanted = {tuple(row[key] for key in keys): float(row[column]) for row in rows}
        assert len(result) > 10
        assert {key: np.mean(values) for key, values in result.items()} == pytest.approx(wanted, abs=1e-5)
    worlds = {row["world"] for row in episodes}
    assert worlds == {f"1/{place}" for place in range(len(worlds))} and len(worlds) > 3


def test_figures_are_removed_and_directions_without_totals_not_ranked(tmp_path: Path) -> None:
    for name in OUTPUTS:
        (tmp_path / name).write_text("of an earlier call")
    table, arms = plant(Planted(agents=4, edited=2, kinds=()))
    in_behaviour = {name: values for name, values in table.outcomes.items() if not name.startswith("kl")}
    write_effects(tmp_path, replace(table, outcomes=in_behaviour), arms, draws=99, seed=1)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"effects.json", "effects.tsv", "effects_by_episode.tsv", "effects.png"}
    table, arms = plant(Planted(agents=4, edited=2, doses=(None,), directions={"weak": 0.1, "strong": 2.0}))
    old = {name: values for name, values in table.outcomes.items() if "_total" not in name}
    lines = write_effects(tmp_path, replace(table, outcomes=old), arms, draws=99, seed=1)
    assert "Directions, not ranked:" in lines and lines.index("  1. weak") < lines.index("  2. strong")
    (note,) = (line for line in lines if line.startswith("- This run was played before changes at once were measured"))
    assert "Bends of paths and kl_by_head.png" in note
    assert (tmp_path / "ranking.png").exists()


def test_a_played_run_is_reported_from_its_folder_again_and_again(tmp_path: Path) -> None:
    table, arms = plant(Planted(agents=4, edited=2, kinds=()))
    write_json(tmp_path / "run.json", with_checksum({"seed": 3, "arms": arms, "policy": "NAME"}))
    assert_refuses("has not been played to its end", report_run, tmp_path)
    write_lives(tmp_path / "lives.parquet", table)
    lines = report_run(tmp_path, draws=99)
    assert lines[0].startswith("8 episodes in each arm, 2 arms, 64 lives")
    assert json.loads((tmp_path / "effects.json").read_text())["settings"]["seed"] == 3
    done = json.loads((tmp_path / "DONE.json").read_text())
    assert {"run.json", "lives.parquet", "effects.json", "effects.tsv", "effects.png"} < set(done["files"])
    assert report_run(tmp_path, draws=99) == lines
    write_lives(tmp_path / "lives.parquet", replace(table, agent=table.agent + 1))
    assert_refuses(r"lives\.parquet", report_run, tmp_path, draws=99)


GOOD = {"seed": 3, "arms": Planted().arms()}


def test_a_file_of_no_intervention_run_is_refused(tmp_path: Path) -> None:
    for content, message in (
        ([], "lists no arms"), ({"arguments": {}}, "lists no arms"), (GOOD, "does not match its own checksum"),
        (with_checksum({**GOOD, "arms": 5}), "damaged: 'arms'"),
        (with_checksum({**GOOD, "arms": []}) | {"seed": 4}, "does not match its own checksum"),
        (with_checksum({**GOOD, "seed": -1}), "the seed -1 is negative"),
        (with_checksum({**GOOD, "arms": [{"name": "edit"}]}), "damaged: 'arms.0.kind'"),
        (with_checksum({**GOOD, "arms": Planted().arms()[1:]}), "needs an unedited arm"),
    ):  # fmt: skip
        write_json(tmp_path / "run.json", content)
        assert_refuses(message, read_run_file, tmp_path / "run.json")


EIGHT = tuple(map(float, range(-3, 5)))
LONG = "steer a_direction_with_a_rather_long_name_and_$dollars$_in_it at the second layer of the memory"


@pytest.mark.parametrize(
    ("planted", "extra"),
    [
        pytest.param(PLANTED, 0, marks=pytest.mark.slow),
        (replace(PLANTED, doses=(None,), episodes=6, agents=8, edited=4), 30),
        (replace(PLANTED, kinds=(), episodes=1, agents=6, edited=3), 0),
        pytest.param(replace(PLANTED, doses=EIGHT, agents=8, edited=4, episodes=5), 9, marks=pytest.mark.slow),
    ],
    ids=["two doses", "no dose, many outcomes", "one episode, no controls", "eight doses, more outcomes"],
)
def test_figures_keep_their_text_inside(planted: Planted, extra: int) -> None:
    table, arms = plant(planted)
    more = {f"event_of_some_kind_number_{place}": table.outcomes["ticks"] * 1.01 for place in range(extra)}
    longest = {name: name.replace("steer is_starving", LONG) for name in {arm.name for arm in arms}}
    arms = [replace(arm, name=longest[arm.name], twin=longest[arm.twin]) for arm in arms]
    names = [longest[name] for name in table.arm.tolist()]
    table = replace(table, arm=np.array(names), outcomes={**table.outcomes, **more})
    study = study_effects(table, arms, Inference(permutations=99, bootstraps=99))
    effects = texts(effects_figure(study))
    figure, doses = kl_by_head(study), dose_response(study)
    assert figure is not None and (doses is None) == (len(planted.doses) < 2)
    heads = texts(figure)
    if doses is not None:
        assert sum("slope " in text for text in texts(doses)) == min(20, 14 + extra)
    for outcome in {effect.outcome for effect in study.effects if effect.spread == effect.spread}:
        assert any(title_with_unit(outcome) in text.replace("\n", " ") for text in effects)
    assert {"Move", "Use item", "all heads"} <= set(heads)
    assert ("counts as an effect" in effects) and ("random directions" in effects) == bool(planted.kinds)


def test_numbers_have_about_three_digits_and_titles_units() -> None:
    numbers = {-14.23: "-14.2", 0.0: "0", 1234.5: "+1234", 0.00456: "+0.00456", np.nan: "n/a", 2.0: "+2.00"}
    assert [number(value) for value in numbers] == list(numbers.values())
    assert title_with_unit("died_of/killed_by_player") == "died: killed by player (share)"
    assert title_with_unit("kl_total/Attack style") == "KL of Attack style, in total (nats)"
    assert title("gain_in_play/Move/North") == "probability of Move North, in play"
    assert title("something_new") == title_with_unit("something_new") == "something_new"


DRAWN = (2, 7)
TICK = 6


def changed(replay: Replay, column: str, tick: int, agents: tuple[int, ...]) -> Replay:
    """The replay with a larger number in one column of some agents, from a tick on."""
    table = getattr(replay.players, column).copy()
    table[tick:, np.isin(replay.players.ids, agents)] += 1
    return replace(replay, players=replace(replay.players, **{column: table}))


def cut(replay: Replay, ticks: int) -> Replay:
    """The first ticks of a replay."""
    players, npcs = (
        replace(case, **{n: t[:ticks] for n, t in vars(case).items() if n not in ("ids", "names")})
        for case in (replay.players, replay.npcs)
    )
    return replace(replay, harvested=replay.harvested[:ticks], players=players, npcs=npcs)


def test_equal_replays_never_differ_and_others_are_refused(replay: Replay) -> None:
    compared = compare(replay, replay, DRAWN)
    assert compared.first_tick is None and (compared.first == -1).all() and not any(compared.differs)
    assert compared.ids[compared.drawn].tolist() == list(DRAWN)
    assert first_difference(compared).startswith("The two episodes are equal")
    # Numbers of inventories depend on the order in which they first occurred.
    last = len(replay.inventories) - 1
    assert last > 0
    players = replace(replay.players, inventory=last - replay.players.inventory)
    reordered = replace(replay, inventories=replay.inventories[::-1], players=players)
    assert compare(replay, reordered, DRAWN).first_tick is None
    other_map = replace(replay, tiles=replay.tiles[::-1])
    other_names = replace(replay, players=replace(replay.players, names=replay.players.names[::-1]))
    for other in (other_map, other_names):
        assert_refuses("not of the same episode", compare, replay, other, DRAWN)
    assert_refuses("of another run", compare, replay, replay, (2, 99))


def test_a_difference_is_found_at_its_tick_and_in_its_agents(replay: Replay) -> None:
    edited = changed(changed(replay, "food", TICK, (7, 9)), "row", TICK, (9,))
    compared = compare(replay, changed(edited, "gold", TICK + 4, (3,)), DRAWN)
    first = dict(zip(compared.ids.tolist(), compared.first.tolist(), strict=True))
    assert first == {number: TICK if number in (7, 9) else TICK + 4 if number == 3 else -1 for number in first}
    assert first_difference(compared) == (
        f"The two episodes first differ at tick {TICK}, in agent 7 (edited; food) and agent 9 (place, food). "
        "Before that, all 16 agents are in the same place and state in both."
    )
    text = first_difference(compare(replay, changed(replay, "health", 0, tuple(first)), DRAWN))  # many are counted
    assert "agent 1 (health), agent 2 (edited; health)," in text and text.endswith("and 11 more.")


def test_the_shorter_replay_is_continued_without_anyone(replay: Replay) -> None:
    compared = compare(cut(replay, 20), replay, DRAWN)
    assert compared.ends == (19, replay.ticks - 1)
    assert compared.unedited.ticks == compared.edited.ticks == replay.ticks
    assert compare(replay, replay, DRAWN, ticks=replay.ticks + 3).edited.ticks == replay.ticks + 3
    assert not compared.unedited.players.present[20:].any() and not compared.unedited.npcs.present[20:].any()
    there = replay.players.present[20]
    assert (compared.first[there] == 20).all()
    assert compared.differs[int(np.flatnonzero(there)[0])] == ("alive or dead",)
