"""One self-contained page that links a run's embedding, agents' observations, their lives and the run's statistics.

What further runs of the dump say of its ticks is shown beside them.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np

from activation_store.schema import option_names
from analysis.dynamics.circuit_graph import COLUMNS
from analysis.explorer.content import Explored, axes_of
from analysis.explorer.tracks import Further, Overlay, Track
from analysis.explorer.views import view_facts, view_tables
from analysis.features.observed import Observed
from analysis.features.registry import CATEGORIES
from analysis.figures.style import NOISE_COLOUR, cluster_colour, cluster_marker
from analysis.interventions.page.scripts import page_scripts
from analysis.labels import NOISE
from analysis.life.events import DIED, EVENT_KINDS, LifeEvents, action_words
from analysis.life.timeline import ESTIMATES, LANES, Timeline
from analysis.pages.pages import BASE, embedded, environment, pack, scripts_of, signed_bytes, style_of
from analysis.runs.propagated_labels import SELECTION_KIND
from analysis.runs.saliency_maps import PARTS

Layout = Literal["explorer", "panel"]
Odds = dict[str, np.ndarray]
"""Probabilities as `build.odds_of` returns them."""
LAYOUTS: tuple[Layout, ...] = ("explorer", "panel")
PANELS = {
    "vitals (points)": {"self_health": "health", "self_food": "food", "self_water": "water"},
    "highest level": {"max_combat_level": "combat", "max_harvesting_level": "harvesting"},
    "in view": {
        "n_visible_players": "players", "n_passive_npcs": "passive NPCs", "n_neutral_npcs": "neutral NPCs",
        "n_aggressive_npcs": "aggressive NPCs",
    },
    "inventory (items)": {"n_inventory_items": "items"},
    "gold": {"self_gold": "gold"},
    "reward": {"reward": "reward"},
    "value": {"value": "value"},
}  # fmt: skip
"""Lines over time that share an axis: by its title with the unit, the columns with their labels."""
_ACT_LABELS = ("move", "melee", "range", "mage", "use", "destroy", "buy", "sell", "give item", "give gold")
ACTS = dict(zip(LANES, _ACT_LABELS, strict=True))
"""Features that are actions (all of them intentions), and the labels of their lanes."""


def life_columns(timeline: Timeline) -> dict[str, np.ndarray]:
    """Return the columns of T ticks to draw, (T,) each; of the estimates, only those that the dump records."""
    names = [*ACTS, *(name for panel in PANELS.values() for name in panel if name not in ESTIMATES)]
    recorded = {name: timeline.columns[name] for name in ESTIMATES if not np.isnan(timeline.columns[name]).all()}
    # Estimates are float32 in every dump, so no precision is lost.
    estimates = {name: column.astype(np.float32) for name, column in recorded.items()}
    return {name: timeline.columns[name].astype(np.int32) for name in names} | estimates


def events_in_words(events: LifeEvents, whole_episodes: bool) -> list[str]:
    """Return a description of each event, such as "hit passive NPC".

    If only some lives of an episode were read, the killer of an agent is unknown and is not named.
    """
    details = (
        detail if whole_episodes or kind != DIED else ""
        for kind, detail in zip(events.kind.tolist(), events.detail, strict=True)
    )
    names = [EVENT_KINDS[kind] for kind in events.kind]
    return [f"{name}: {detail}" if detail else name for name, detail in zip(names, details, strict=True)]


_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js", "playback.js")
_PARTS = (
    "data", "card", "statistics", "embedding", "life", "world", "selection", "quantity", "motion", "circuits",
    "clusters", "search", "panes", "address", "main",
)  # fmt: skip
_SCRIPTS = [_HERE / f"{name}.js" for name in _PARTS]
_SYMBOLS = {
    "o": "circle", "^": "triangle-up", "s": "square", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "<": "triangle-left", ">": "triangle-right", "*": "star",
}  # fmt: skip
"""Plotly's names of the markers used in figures."""
_BYTE = 255
_NUMBERED = re.compile(r"(player|agent|NPC) -?\d+")
"""An entity with its number, as words of actions and events name it."""


def explorer_page(
    content: Explored, further: Further | None = None, odds: Odds | None = None, layout: Layout = "explorer"
) -> str:
    """Return the page as HTML, opened on a layout."""
    from plotly.offline import get_plotlyjs

    further = further or Further()
    columns, tracks = life_columns(content.timeline), further.tracks
    own = page_scripts()
    films = {name: film for name, film in further.films.items() if own.allow(film)}
    # Columns of ticks that points can be coloured by; features of the run are in the list anyway.
    features = {feature["name"] for feature in content.run.summary["features"]}
    colouring = [name for name in ("tick", "value") if name not in features and (name == "tick" or name in columns)]
    by_run: dict[str, list[tuple[int, Track]]] = {}
    for i, track in enumerate(tracks):
        by_run.setdefault(track.run, []).append((i, track))
    listed, packed = _packed(content, columns, further, odds, films)
    page = environment(_HERE).get_template("template.html")
    return page.render(
        content=content, run=content.run, summary=content.run.summary, columns=colouring,
        tracks=by_run, planes=_planes(content, tracks), further=further,
        layouts=sorted(LAYOUTS, key=lambda one: one != layout), word=content.labels.word,
        permutations=len(content.shifts) - 1,
        facts=embedded(_facts(content, columns, further, odds) | {"columns": listed}),
        films=films, of_films=own.allowed if films else "", packed=packed,
        style=style_of("window", _HERE), scripts=scripts_of(_KIT, _SCRIPTS, [get_plotlyjs()]),
    )  # fmt: skip


def _packed(
    content: Explored, columns: dict[str, np.ndarray], further: Further, odds: Odds | None, films: dict[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Pack the points, the ticks of their lives, and how the run's test shifts each life's labels."""
    shifts, (label, own) = content.shifts, content.tick_labels
    planes = {i: track.plane for i, track in enumerate(further.tracks) if track.plane is not None}
    tables = {
        "point.x": content.run.embedding[content.rows, 0],
        "point.y": content.run.embedding[content.rows, 1],
        "point.row": content.rows,
        "point.tick": content.place,
        "point.label": content.run.clusters.label[content.rows],
        "point.order": content.lives.order,
        "point.near": content.neighbours,
        "life.points": content.lives.lengths,
        "test.shifts": _small(shifts),
        **_further_tests(content),
        "label": label,
        "own": own,
        **{f"feature.{i}": _narrow(column) for i, column in enumerate(content.values.T)},
        **{f"category.{i}": held for i, (_, held) in enumerate(content.categories.values())},
        **{f"plane.{i}.{axis}": plane[:, place] for i, plane in planes.items() for place, axis in enumerate("xy")},
        **{f"track.{i}": _stored(track) for i, track in enumerate(further.tracks)},
        **{f"simulated.{i}": lives.begins for i, lives in enumerate(content.simulated)},
        **{
            f"motion.{i}.{name}": one for i, motion in enumerate(further.motions) for name, one in motion.tables.items()
        },
        **{f"odds.{head}" if head else "chosen": _percent(shares) for head, shares in (odds or {}).items()},
    }
    ticks, texts = _ticks(content, columns)
    for i, overlay in enumerate(further.overlays):
        tables |= {f"map.{i}.{name}": table for name, table in _map(overlay, ticks["entity.count"]).items()}
    return pack(tables | ticks, texts | {"films": films})


def _ticks(content: Explored, columns: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Return tables of the page's ticks, simulated ones last, and the texts that they name by number."""
    parts = [_seen(content.seen, content.timeline, columns)]
    words, happened = action_words(content.seen), events_in_words(content.timeline.events, content.whole)
    for lives in content.simulated:
        columns_of_lives = life_columns(lives.timeline)
        part = _seen(lives.seen, lives.timeline, {name: columns_of_lives[name] for name in columns})
        begins = np.repeat(lives.begins, lives.timeline.lives.lengths)
        part["event.tick"] += sum(len(other["tick"]) for other in parts)
        # Their worlds are their own, and are unfolded on their own.
        part["episode"] = parts[-1]["episode"].min(initial=0) - 1 - part["episode"]
        part |= {"agent": parts[0]["agent"][begins], "tick": parts[0]["tick"][begins] + lives.behind}
        parts.append(part)
        # Simulated entities have no identity: their numbers are those of their tiles.
        words += [_NUMBERED.sub(r"\1", text) for text in action_words(lives.seen)]
        happened += [
            _NUMBERED.sub(r"\1", text) for text in events_in_words(lives.timeline.events, whole_episodes=False)
        ]
    phrases, phrase = np.unique(np.array(words), return_inverse=True)
    events, event = np.unique(np.array(happened), return_inverse=True)
    tables = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return tables | {"words": phrase, "event.words": event}, {"phrases": phrases.tolist(), "events": events.tolist()}


def _seen(seen: Observed, timeline: Timeline, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what agents saw and did tick by tick, and what happened."""
    records, events = seen.records, timeline.events
    return {
        "life.ticks": timeline.lives.lengths, "tick": records.tick, "agent": records.agent_id,
        "episode": records.episode, **view_tables(seen), **columns,
        "event.tick": events.record.copy(), "event.kind": events.kind,
    }  # fmt: skip


def _further_tests(content: Explored) -> dict[str, np.ndarray]:
    """Return the data needed by the tests with whole episodes shifted, and with tick and age held constant."""
    course, shared = content.time_course, content.shared_shifts
    tables = {
        "course.ticks": course.ticks,
        "course.ages": course.ages,
        **{f"course.tick.{i}": column for i, column in enumerate(course.of_tick.T)},
        **{f"course.age.{i}": column for i, column in enumerate(course.of_age.T)},
    }
    if shared is None:
        return tables
    episodes = {"life.episode": shared.episode, "episode.longest": shared.longest}
    return tables | episodes | {"test.sharedShifts": _small(shared.shifts)}


def _small(shifts: np.ndarray) -> np.ndarray:
    return shifts.astype(np.uint8 if shifts.max() <= _BYTE else np.int32)


def _planes(content: Explored, tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """Return the embeddings that points can be shown in, in the page's format: the run's own first."""
    own = {"run": content.run.name, "axes": axes_of(content.run), "x": "point.x", "y": "point.y"}
    others = [
        {"run": track.run, "axes": track.axes, "x": f"plane.{i}.x", "y": f"plane.{i}.y"}
        for i, track in enumerate(tracks) if track.plane is not None
    ]  # fmt: skip
    return [own, *others]


def _stored(track: Track) -> np.ndarray:
    """Return a track's labels, or its numbers as steps of their range, (T,) uint8."""
    if track.clusters:
        return track.values
    low, high = float(track.values.min()), float(track.values.max())
    return np.rint((track.values - low) * (_BYTE / (high - low) if high > low else 0)).astype(np.uint8)


def _map(overlay: Overlay, count: np.ndarray) -> dict[str, np.ndarray]:
    """Return tables of M maps: the largest |attribution| in each, and all in 127ths of it.

    Args:
        count: how many others are in view at each tick of the page.
    """
    owner = np.repeat(np.arange(len(overlay.ticks)), count[overlay.ticks])
    most = np.abs(overlay.tiles).max(axis=1)
    np.maximum.at(most, owner, np.abs(overlay.entities))
    return {
        "ticks": overlay.ticks, "most": most, "tiles": signed_bytes(overlay.tiles, most[:, None]),
        "entities": signed_bytes(overlay.entities, most[owner]), "parts": _percent(overlay.parts),
    }  # fmt: skip


def _percent(shares: np.ndarray) -> np.ndarray:
    """Return shares in percent, 255 where unknown, uint8."""
    return np.where(np.isfinite(shares), np.nan_to_num(shares) * 100, _BYTE).round().astype(np.uint8)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return whole-numbered values as integers, which compress better."""
    whole = (values == np.round(values)).all() and np.abs(values).max(initial=0) < np.iinfo(np.int32).max
    return values.astype(np.int32) if whole else values


def _facts(content: Explored, columns: dict[str, np.ndarray], further: Further, odds: Odds | None) -> dict[str, Any]:
    """Return everything except the tables."""
    run, clusters = content.run, content.run.clusters
    panels = {title: {key: name for key, name in panel.items() if key in columns} for title, panel in PANELS.items()}
    # Names that people gave to the groups of one page are about those of another with the same key.
    of_groups = content.labels.word == "cluster"
    labels_key = clusters.labels_sha256 if of_groups else sha256(clusters.label.tobytes()).hexdigest()
    return {
        "run": run.name,
        "runKey": run.clusters.labels_sha256,
        "labelsKey": labels_key,
        "folder": run.clusters.path.as_posix(),
        "selectionKind": SELECTION_KIND,
        "policyColour": cluster_colour(0),
        "planes": _planes(content, further.tracks),
        "features": run.summary["features"],
        "byChoice": [{"choice": choice, "places": places} for choice, places in content.by_choice.items()],
        "categories": [
            {
                "name": name,
                "definition": CATEGORIES[name].definition,
                "groups": [{"label": i, "name": option, **_look(i)} for i, option in enumerate(options)],
            }
            for name, (options, _) in content.categories.items()
        ],
        "clusters": [_cluster(cluster) for cluster in run.summary["clusters"]],
        "tracks": [_track(track) for track in further.tracks],
        "maps": [overlay.maps.facts for overlay in further.overlays],
        "parts": PARTS,
        "recorded": {"lives": len(content.timeline.lives), "ticks": len(content.seen)},
        "simulated": [
            {"name": lives.name, "edits": lives.edits, "lives": len(lives.begins)} for lives in content.simulated
        ],
        "word": content.labels.word,
        "noise": {
            "label": NOISE,
            "colour": NOISE_COLOUR,
            "records": run.summary["noise_records"],
            "name": "noise" if content.labels.word == "cluster" else f"no {content.labels.word} yet",
        },
        "motions": [motion.facts for motion in further.motions],
        "circuits": [asdict(circuit) for circuit in further.circuits.values()],
        "circuitColumns": COLUMNS,
        "heads": [head.name for head in content.seen.metadata.action_heads],
        "odds": {head: option_names(head, shares.shape[1]) for head, shares in (odds or {}).items() if head},
        **view_facts(),
        "panels": [{"title": title, "columns": drawn} for title, drawn in panels.items() if drawn],
        "acts": ACTS,
        "eventKinds": EVENT_KINDS,
    }


def _track(track: Track) -> dict[str, Any]:
    described = {"run": track.run, "name": track.name, "unit": track.unit, "definition": track.definition}
    if track.clusters:
        return described | {"clusters": [_cluster(cluster) for cluster in track.clusters]}
    return described | {"low": float(track.values.min()), "high": float(track.values.max())}


def _cluster(cluster: dict[str, Any]) -> dict[str, Any]:
    effects = cluster["effects"]
    return {
        **{name: cluster[name] for name in ("label", "records", "share", "description")},
        "compared": len(effects),
        "surviving": sum(effect["survives"] for effect in effects),
        "survivingGivenTime": sum(effect["survives_given_time"] for effect in effects),
        **_look(cluster["label"]),
    }


def _look(label: int) -> dict[str, str]:
    return {"colour": cluster_colour(label), "symbol": _SYMBOLS[cluster_marker(label)]}
