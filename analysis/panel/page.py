"""One self-contained page: rollouts played frame by frame, beside what moves the policy's memory in them."""

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from activation_store.schema import TILES_IN_VIEW
from analysis.dynamics.circuits.graph import COLUMNS
from analysis.explorer.views import SIDE, view_facts
from analysis.features.actions import STYLES
from analysis.features.choices import DIRECTIONS
from analysis.figures.style import NOISE_COLOUR, cluster_colour, cluster_marker
from analysis.pages.packing import Packed, embedded, pack, signed_bytes
from analysis.pages.pages import BASE, environment, scripts_of, style_of
from analysis.panel.content import PanelContent
from analysis.panel.ticks import VITALS
from analysis.runs.saliency_maps import PARTS, SaliencyMaps

_HERE = Path(__file__).parent
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js", "playback.js")
_SCRIPTS = [
    _HERE / f"{name}.js" for name in ("data", "state", "scatter", "player", "lines", "matrices", "circuits", "main")
]
_SHAPES = {
    "o": "circle", "^": "triangle", "s": "square", "D": "diamond", "v": "triangle", "P": "square", "X": "diamond",
}  # fmt: skip
STEPS_IN_SPREAD = 50
"""Components are stored in steps of a fiftieth of their standard deviation."""
HUNDRED = 100
"""Correlations are stored in hundredths, probabilities in percent."""
UNKNOWN = -128
ROLLOUTS_AT_ONCE = 400
"""Rollouts whose ticks are unpacked together."""
_AT_ONCE = 20_000
_NONE_SURE = "nothing that survives"
"""How analyze_dynamics.py describes a behaviour in which no feature differs at q < 0.05."""
_OPTIONS = {"Move.Direction": (*DIRECTIONS, "stay"), "Attack.Style": tuple(STYLES)}


def panel_page(content: PanelContent) -> str:
    """Return the page as HTML."""
    packed, packs = pack(_tables(content), {}), _packs(content)
    page = environment(_HERE, trim=True).get_template("template.html")
    return page.render(
        run=content.dynamics.path.resolve().name, dynamics=content.dynamics, content=content,
        estimates=_estimates(content),
        real=int(sum(not content.sources[number].simulated for number in content.source)),
        simulated=int(sum(content.sources[number].simulated for number in content.source)),
        dump=content.dynamics.dump,
        facts=embedded(_facts(content) | {"columns": packed.columns, "packs": [part.columns for part in packs]}),
        packed=packed.content, packs=packs, style=style_of("window", _HERE),
        scripts=scripts_of(_KIT, _SCRIPTS),
    )  # fmt: skip


def _tables(content: PanelContent) -> dict[str, np.ndarray]:
    """Return what the first picture needs whole: rollouts, matrices, maps, and how many entities each tick has."""
    ticks, dynamics = content.ticks, content.dynamics
    ends = np.cumsum(content.lengths)
    tables = {
        "rollout.ticks": content.lengths,
        "rollout.source": content.source,
        "rollout.agent": content.life[:, 1],
        "rollout.episode": content.life[:, 2],
        "rollout.first": ticks.places["tick"][ends - content.lengths],
        "rollout.last": ticks.places["tick"][ends - 1],
        "rollout.main": content.main,
        "rollout.x": content.plane[:, 0],
        "rollout.y": content.plane[:, 1],
        "entity.count": ticks.entities["entity.count"],
        "r": np.where(np.isfinite(dynamics.r), np.round(np.nan_to_num(dynamics.r) * HUNDRED), UNKNOWN).astype(np.int8),
        "significant": dynamics.significant,
        "jacobian": _rounded(dynamics.jacobian),
    }
    for number, (saliency, rows) in enumerate(zip(content.saliency, content.maps, strict=True)):
        tables |= {f"map.{number}{name}": table for name, table in saliency_tables(saliency, rows, content).items()}
    return tables


def _packs(content: PanelContent) -> list[Packed]:
    """Pack the ticks of `ROLLOUTS_AT_ONCE` rollouts at a time, so that the page can show the first ones at once."""
    ticks = content.ticks
    tables = _tick_tables(content)
    of_entities = {name: table for name, table in ticks.entities.items() if name not in _NOT_OF_ENTITIES}
    entity = np.concatenate([[0], np.cumsum(ticks.entities["entity.count"])])
    bounds = [*range(0, len(content), ROLLOUTS_AT_ONCE), len(content)]
    edges = np.concatenate([[0], np.cumsum(content.lengths)])[bounds]
    packs = []
    for start, stop in itertools.pairwise(edges.tolist()):
        phrases, word = np.unique(ticks.words[start:stop], return_inverse=True)
        along = {name: table[:, start:stop] for name, table in tables.items() if name in _ALONG_TICKS}
        own = along | {name: table[start:stop] for name, table in tables.items() if name not in _ALONG_TICKS}
        own |= {name: table[entity[start] : entity[stop]] for name, table in of_entities.items()}
        packs.append(pack({**own, "words": word}, {"phrases": phrases.tolist()}))
    return packs


_NOT_OF_ENTITIES = ("entity.row", "entity.count", "attack.target")
_ALONG_TICKS = ("component", "chosen")
"""Tables whose last axis is that of ticks."""


def _tick_tables(content: PanelContent) -> dict[str, np.ndarray]:
    ticks = content.ticks
    return {
        "tiles": view_changes(ticks.material, ticks.corner, content.lengths),
        "tick": ticks.places["tick"],
        "view.row": ticks.corner[:, 0],
        "view.col": ticks.corner[:, 1],
        "attack.target": ticks.entities["attack.target"],
        **{f"self_{name}": ticks.vitals[name] for name in VITALS},
        "behaviour": content.behaviour,
        "own": content.own,
        "component": np.round(ticks.states["components"].T * STEPS_IN_SPREAD).clip(-32768, 32767).astype(np.int64),
        **{name: _rounded(getattr(ticks, name)) for name in _estimates(content)},
        **{f"p.{head}": _percent(shares) for head, shares in ticks.probabilities.items()},
        **({"chosen": _percent(ticks.chosen.T)} if np.isfinite(ticks.chosen).any() else {}),
    }


def view_changes(material: np.ndarray, corner: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return each view XORed with what the rollout's view before it showed of the same tiles, (T, 225) uint8.

    The first view of a rollout is kept, and so are tiles that just came into view.

    Args:
        material: of the tiles, (T, 225) uint8.
        corner: map row and column of the view's first tile, (T, 2).
        lengths: ticks of each rollout.
    """
    first = np.zeros(len(material), bool)
    first[np.cumsum(lengths) - lengths] = True
    moved = np.diff(corner, axis=0, prepend=corner[:1])
    row, col = np.divmod(np.arange(TILES_IN_VIEW), SIDE)
    folded = material.copy()
    for start in range(0, len(material), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        before_row, before_col = row + moved[part, :1], col + moved[part, 1:]  # (n, 225)
        seen = (before_row >= 0) & (before_row < SIDE) & (before_col >= 0) & (before_col < SIDE) & ~first[part, None]
        place = np.where(seen, before_row * SIDE + before_col, 0)
        before = material[np.maximum(np.arange(len(material))[part] - 1, 0)]
        folded[part] ^= np.where(seen, np.take_along_axis(before, place, axis=1), 0).astype(np.uint8)
    return folded


def saliency_tables(saliency: SaliencyMaps, rows: np.ndarray, content: PanelContent) -> dict[str, np.ndarray]:
    """Return the maps over the ticks of the panel: of M mapped ticks, in order of ticks, and L lags.

    Returns:
        "": which ticks have a map, (T,). ".scale": the largest |attribution| of a tile or entity, (M, L), NaN for no
        map; ".tiles" and ".entities" in 127ths of it, (M, L, 225) and (entities of these ticks, L). ".parts": (M, L,
        parts). ".value": (M,).
    """
    mapped = np.flatnonzero(rows >= 0)
    used = rows[mapped]
    tiles = saliency.tiles[used]  # (M, L, 225)
    owner = np.repeat(np.arange(len(content.ticks)), content.ticks.entities["entity.count"])
    of_mapped = np.flatnonzero(rows[owner] >= 0)
    number = np.searchsorted(mapped, owner[of_mapped])
    row = np.minimum(content.ticks.entities["entity.row"][of_mapped], saliency.entities.shape[2] - 1)
    entities = np.nan_to_num(saliency.entities[used[number], :, row])  # (entities, L)
    scale = np.abs(tiles).max(axis=2)
    most = np.nan_to_num(scale)
    np.maximum.at(most, number, np.abs(entities))
    return {
        "": rows >= 0,
        ".scale": np.where(np.isfinite(scale), most, np.nan).astype(np.float32),
        ".tiles": signed_bytes(np.nan_to_num(tiles), most[:, :, None]),
        ".entities": signed_bytes(entities, most[number]),
        ".parts": _rounded(np.nan_to_num(saliency.parts[used])),
        ".value": saliency.value[used].astype(np.float32),
    }


def _estimates(content: PanelContent) -> list[str]:
    """Return those of value and reward that the dumps record."""
    return [name for name in ("value", "reward") if np.isfinite(getattr(content.ticks, name)).any()]


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return float32 rounded to 12 bits, about 4 digits: the bytes that this leaves empty take no room."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + (1 << 11)) & ~np.uint64((1 << 12) - 1)).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, np.float32(np.nan)).astype(np.float32)


def _percent(values: np.ndarray) -> np.ndarray:
    """Return probabilities in percent, 255 where unknown, uint8."""
    return np.where(np.isfinite(values), np.round(np.nan_to_num(values) * HUNDRED), 255).astype(np.uint8)


def _facts(content: PanelContent) -> dict[str, Any]:
    dynamics, heads = content.dynamics, content.sources[0].metadata.action_heads
    return {
        "run": dynamics.path.resolve().name, "policy": dynamics.policy, "layer": dynamics.layer, **view_facts(),
        "components": [{"name": one.component, **vars(one)} for one in dynamics.components],
        "stepsInSpread": STEPS_IN_SPREAD, "rolloutsAtOnce": ROLLOUTS_AT_ONCE,
        "lags": dynamics.r.shape[1] - 1, "behaviours": [_behaviour(content, number) for number in _numbers(content)],
        "noise": {"colour": NOISE_COLOUR, "shape": "circle"},
        "sources": [{"name": source.dump.resolve().name, "simulated": source.simulated} for source in content.sources],
        "heads": [{"name": head.name, "noop": head.noop} for head in heads],
        "probabilities": {head: _option_names(head, odds.shape[1]) for head, odds in _probabilities(content).items()},
        "saliency": [maps.facts for maps in content.saliency], "parts": PARTS, "estimates": _estimates(content),
        "circuits": [asdict(circuit.graph) for circuit in content.circuits], "circuitColumns": COLUMNS,
    }  # fmt: skip


def _numbers(content: PanelContent) -> range:
    return range(len(content.dynamics.shares))


def _probabilities(content: PanelContent) -> Mapping[str, np.ndarray]:
    return content.ticks.probabilities


def _option_names(head: str, count: int) -> list[str]:
    names = _OPTIONS.get(head, ())
    return list(names) if len(names) == count else [f"option {number}" for number in range(count)]


def _behaviour(content: PanelContent, number: int) -> dict[str, Any]:
    dynamics = content.dynamics
    differences = dynamics.differences[number].replace(_NONE_SURE, "no feature differs clearly")
    return {
        "number": number, "colour": cluster_colour(number), "shape": _SHAPES.get(cluster_marker(number), "circle"),
        "share": float(dynamics.shares[number]), "states": int(dynamics.states[number]),
        "differences": differences, "rollouts": int((content.main == number).sum()),
    }  # fmt: skip
