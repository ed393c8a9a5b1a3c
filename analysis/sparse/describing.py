"""Describe the features of one dictionary of a run, erase variables by them, and write cards, table and directions.

There are three ways to take a variable out of states. LEACE (Belrose et al. 2023, arXiv:2306.03819) removes all that
can be read linearly with the least change. Nulling holds one linear read-out, by ridge regression, at its mean. Removal
takes out the sparse features whose strengths correlate most with the variable.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from scipy import sparse

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, write_directions
from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import SparseDictionary, feature_name
from agent_zoo.sparse_codes import SparseCoder
from analysis.explorer.views import view_facts
from analysis.features.feature import Feature
from analysis.features.registry import features_named
from analysis.pages.pages import BASE, embedded, environment, pack, scripts_of, style_of
from analysis.runs.run_folder import RunFolder
from analysis.sparse.meaning import BESIDE, PERMUTATIONS, Meanings, correlations, feature_cards, meanings, rows_of
from analysis.sparse.outputs import Row, attribution_scatter
from analysis.sparse.scores import Estimate, strengths_of
from analysis.sparse.settings import SparseSettings
from analysis.sparse.splicing import OUTPUTS, Attributions, RecordedPolicy, attribute, splice
from analysis.sparse.states import Behaviours, Split, read_behaviours
from analysis.tables import tab_separated
from common.argument_checks import split
from common.number_text import plural
from common.progress_view import step
from common.user_error import UserError

REMOVED = (1, 4, 16)
"""Numbers of features that are removed."""

NOTHING = "nothing"
_PENALTY = 1e-4

Edit = Callable[[torch.Tensor], torch.Tensor]


def erasers(
    states: np.ndarray, variable: np.ndarray, strengths: sparse.csr_array, dictionary: SparseDictionary
) -> dict[str, Edit]:
    """Fit every way to erase a variable to training states.

    Args:
        states: (B, U) float32.
        variable: (B,), not constant.
        strengths: of the dictionary's features in these states, (B, F).
    """
    from concept_erasure import LeaceFitter

    scaled = torch.from_numpy(variable.astype(np.float64) / variable.std())[:, None]
    leace = LeaceFitter.fit(
        torch.from_numpy(states).double(), scaled, constrain_cov_trace=False, shrinkage=False
    ).eraser  # fmt: skip
    weight, mean, _ = _read_out(states, variable)
    direction, origin = torch.from_numpy(weight / np.linalg.norm(weight)), torch.from_numpy(mean)
    coder = SparseCoder(dictionary)

    def null(states: torch.Tensor) -> torch.Tensor:
        along = (states.double() - origin) @ direction
        return (states.double() - along[:, None] * direction).float()

    def without(numbers: list[int], states: torch.Tensor) -> torch.Tensor:
        parts = [chunk - coder.strengths(chunk)[:, numbers] @ coder.decoder[numbers] for chunk in states.split(4096)]
        return torch.cat(parts)

    order = np.argsort(-np.abs(correlations(strengths, variable[:, None])[:, 0]), kind="stable")
    return {
        NOTHING: lambda states: states, "leace": lambda states: leace(states.double()).float(), "nulling": null,
        **{f"{count} feature{'s' * (count > 1)}": partial(without, order[:count].tolist()) for count in REMOVED},
    }  # fmt: skip


def erasure_row(
    variable: str, by: str, edit: Edit, training: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray],
    kl: float,
) -> Row:  # fmt: skip
    """Return a row on what is left of a variable after an edit.

    `r2` is the share of the variable's variance in edited test states that a linear read-out explains, fitted again to
    edited training states; `moved` the mean squared distance that states are moved, as a share of their variance.

    Args:
        by: how it was erased: `nothing`, `leace`, `nulling` or `N features`.
        training, test: states, (B, U), and the variable, (B,).
        kl: divergence of the policy's actions from those on the recorded state, in nats; NaN if not spliced.
    """
    edited = [edit(torch.from_numpy(states)).numpy() for states, _ in (training, test)]
    weight, mean, offset = _read_out(edited[0], training[1])
    predicted = (edited[1] - mean) @ weight + offset
    left = np.square(test[1] - predicted).mean() / np.square(test[1] - training[1].mean()).mean()
    moved = np.square(edited[1] - test[0]).sum(axis=1).mean() / test[0].var(axis=0).sum()
    return {"variable": variable, "by": by, "r2": float(1 - left), "moved": float(moved), "kl": kl}


def _read_out(states: np.ndarray, variable: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit a ridge regression; returns its weight, the states' mean, (U,) each, and the variable's mean."""
    mean, offset = states.mean(axis=0, dtype=np.float64), float(variable.mean())
    centred = states - mean
    products = centred.T @ centred / len(states)
    penalty = _PENALTY * np.trace(products) / len(products)
    weight = np.linalg.solve(products + penalty * np.eye(len(products)), centred.T @ (variable - offset) / len(states))
    return weight, mean, offset


PAGE_FILE = "sparse_features.html"
FEATURES_FILE = "sparse_features"
UNIT = "distance along the feature's direction, in activation units"

_PAGE = Path(__file__).parent / "page"
_KIT = (*BASE, "canvas.js", "glyphs.js", "view.js")
_SHOWN = 10
_ERASED = 20_000


@dataclass(frozen=True, eq=False)
class Described:
    """The described features of one dictionary.

    Attributes:
        rows: one for each feature that is active in the test episodes.
        tables, texts: as `feature_cards` returns them.
        attributions: what taking features out changes; None if the policy was not at hand.
        erasures: ways to erase variables; empty if none were asked for.
    """

    name: str
    dictionary: SparseDictionary
    episodes: Sequence[int]  # that were tested on
    rows: list[dict[str, object]]
    tables: Mapping[str, np.ndarray]
    texts: Mapping[str, list[str]]
    directions: list[Direction]
    attributions: Attributions | None
    erasures: list[Row]

    def lines(self) -> list[str]:
        """Say how many features are described, and show the clearest of them."""
        described = [row for row in self.rows if row["described"]]
        described.sort(key=lambda row: -abs(float(str(row["r"]))))
        lines = [f"{self.name}: {len(described):,} of {len(self.rows):,} active features go with a behaviour; first:"]
        lines += [f"  {row['name']}: {row['description']}" for row in described[:_SHOWN]]
        return [
            *(lines if described else [lines[0].replace("; first:", "")]),
            *(
                f"taking single features out, predicted (gradient times activation) against measured change of the "
                f"{name}: r {estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
                for name, estimate in self.correlations().items()
            ),
        ]

    def correlations(self) -> dict[str, Estimate]:
        """Return the correlation of predicted and measured effects, by output; empty without attributions."""
        attributions = self.attributions
        return {} if attributions is None else {name: attributions.correlation(i) for i, name in enumerate(OUTPUTS)}


def described_features(settings: SparseSettings) -> tuple[Feature, ...]:
    """Return the behaviours that features are described with, those to erase included."""
    return features_named([*split(settings.feature_set), *split(settings.erase)])


def describe(
    settings: SparseSettings, metadata: DumpMetadata, split_: Split, name: str, dictionary: SparseDictionary,
    again: np.ndarray, recorded: RecordedPolicy | None, console: Console,
) -> Described:  # fmt: skip
    """Read behaviours of all episodes, and describe every feature of a dictionary.

    Args:
        again: cosine with each feature's partner in another seed, and its q against a Gaussian's, (2, F); NaN for none.
        recorded: the policy, for attribution; None to leave it out.
    """
    features = described_features(settings)
    layer = settings.layer
    with step(console, "reading behaviours of the training episodes") as show:
        training = read_behaviours(settings.dump, metadata, layer, split_.train, features, show)
    with step(console, "reading behaviours of the test episodes") as show:
        test = read_behaviours(settings.dump, metadata, layer, split_.test, features, show)
    with step(console, f"describing the features of {name}"):
        own, others = (strengths_of(dictionary, part.states.values) for part in (training, test))
        tested_meanings = meanings((own, training), (others, test), settings.seed)
    attributions = None
    if recorded is not None:
        with step(console, "taking features out of recorded ticks") as show:
            attributions = attribute(settings.dump, recorded, layer, dictionary, split_.test, settings.seed, show)
    with step(console, "erasing variables"):
        erasures = _erasures(settings, split_, features, (own, training), test, dictionary, recorded)
    effects = np.full((2, dictionary.features), np.nan)
    if attributions is not None:
        effects = attributions.of_features(dictionary.features)
    more_columns = dict(zip(BESIDE, (*again, *effects), strict=True))
    with step(console, "collecting their top records") as show:
        tables, texts = feature_cards(
            settings.dump, metadata, split_.test, others, test, tested_meanings, features, more_columns, show
        )
    rows = rows_of(tested_meanings, features, more_columns)
    return Described(
        name, dictionary, split_.test, rows, tables, texts, _directions(dictionary, tested_meanings, test),
        attributions, erasures,
    )  # fmt: skip


def _erasures(
    settings: SparseSettings, split_: Split, features: tuple[Feature, ...],
    training: tuple[sparse.csr_array, Behaviours], test: Behaviours, dictionary: SparseDictionary,
    recorded: RecordedPolicy | None,
) -> list[Row]:  # fmt: skip
    """Erase each variable that was asked for in every way."""
    names, rows = [feature.name for feature in features], []
    strengths, before = training
    mean = before.states.values.mean(axis=0)
    # Read-outs of a few hundred units need no more states than this.
    some, others_too = (_some(len(part.states), settings.seed) for part in (before, test))
    for variable in split(settings.erase):
        column = names.index(variable)
        values = before.values[some, column].astype(np.float64)
        others = test.values[others_too, column].astype(np.float64)
        if not values.std() > 0:
            raise UserError(f"--erase {variable}: it has the same value in all training states")
        states = before.states.values[some]
        ways = erasers(states, values, strengths[some], dictionary)
        run = None
        if recorded is not None:
            run = splice(settings.dump, recorded, settings.layer, ways, split_.test, mean, settings.seed)
        for by, edit in ways.items():
            kl = np.nan if run is None else run.kl(by).value
            rows.append(erasure_row(variable, by, edit, (states, values), (test.states.values[others_too], others), kl))
    return rows


def _some(count: int, seed: int) -> np.ndarray:
    """Return the places of up to `_ERASED` of so many states, drawn at random, ascending."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:_ERASED])


def save(folder: RunFolder, described: Described, settings: SparseSettings, metadata: DumpMetadata) -> None:
    """Write the page, the table and the directions."""
    rows = [{name: value for name, value in row.items() if name != "title"} for row in described.rows]
    folder.save_text(f"{FEATURES_FILE}.tsv", tab_separated(rows))
    write_directions(folder.path / DIRECTIONS_FILE, described.directions)
    if described.erasures:
        folder.save_text("erasure.tsv", tab_separated(described.erasures))
    if described.attributions is not None:
        folder.save_figure("attribution.png", attribution_scatter(described.attributions))
        folder.save_json(
            "attribution.json", {name: asdict(estimate) for name, estimate in described.correlations().items()}
        )
    folder.save_text(PAGE_FILE, _page(folder.path.name, described, settings, metadata))


def _page(name: str, described: Described, settings: SparseSettings, metadata: DumpMetadata) -> str:
    """Return a page with a card for each feature: what it goes with, its top records, and their lives."""
    tables, texts = described.tables, described.texts
    columns, packed = pack(tables, texts)
    behaviours = [{"name": f.name, "unit": f.unit, "definition": f.definition} for f in described_features(settings)]
    content = {
        "columns": columns, **view_facts(), "parts": tables["feature.byAge"].shape[1],
        "behaviours": behaviours, "dump": str(settings.dump),
    }  # fmt: skip
    count = sum(bool(row["described"]) for row in described.rows)
    about = {
        "sentence": f"{metadata.policy}, {settings.layer}, dictionary {described.name}: {len(described.rows):,} of "
        f"{described.dictionary.features:,} features are active in the test episodes, and {count:,} of these go with "
        "a behaviour.",
        "test": f"{plural(len(described.episodes), 'episode')} ({', '.join(map(str, described.episodes))})",
        "permutations": PERMUTATIONS,
        "caution": "Lives are shifted independently, so something that happened to a whole world can pass for a "
        "behaviour. A behaviour that goes with a feature is not proved to be what the policy uses it for: edit it.",
    }  # fmt: skip
    page = environment(_PAGE, trim=True).get_template("template.html")
    return page.render(
        name=name, about=about, facts=embedded(content), packed=packed,
        style=style_of("window", _PAGE), scripts=scripts_of(_KIT, [_PAGE / "main.js"]),
    )  # fmt: skip


def _directions(dictionary: SparseDictionary, meanings: Meanings, test: Behaviours) -> list[Direction]:
    """Return each active feature's direction, whose read-out is the distance from the centre along it."""
    source = dictionary.source
    alive = np.flatnonzero(meanings.density > 0)
    states, made = test.states, []
    read_outs = (states.values - dictionary.centre) @ dictionary.decoder[alive].T  # (B, alive) float32
    means, spreads = read_outs.mean(axis=0, dtype=np.float64), read_outs.std(axis=0, dtype=np.float64)
    where = Source("sparse feature", source.run, source.dump, source.policy, source.checkpoint_sha256)
    episodes = len(np.unique(states.episodes))
    for place, number in enumerate(alive.tolist()):
        weight = dictionary.decoder[number]
        bias = -float(dictionary.centre.astype(np.float64) @ weight)
        made.append(
            Direction(
                feature_name(number), source.layer, weight, bias, UNIT, float(means[place]), float(spreads[place]),
                len(states), len(states.lives), episodes, where,
            )
        )  # fmt: skip
    return made
