"""What a run of sparse autoencoders knows and leaves: dictionaries, tables and figures, and lines for the terminal.

Autoencoders are also written in the layout of SAELens 6, so that its tools can load them: `SAE.load_from_disk(FOLDER)`.
cfg.json names the architecture, sae_weights.safetensors has the weights. BatchTopK and Matryoshka have a threshold once
they are trained, as JumpReLU has, and are written as such.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson
import safetensors.numpy
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from rich.table import Table

from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import AUTOENCODERS, BASELINES, SparseDictionary, write_dictionary
from analysis.figures.style import cluster_colour, new_figure, style
from analysis.runs.run_folder import RunFolder
from analysis.sparse.fitting import Fitted
from analysis.sparse.scores import CONFIDENCE, RESAMPLES, Estimate, Units, Usage
from analysis.sparse.splicing import Attributions, SplicedRun
from analysis.sparse.states import Split
from analysis.sparse.training import Epoch
from analysis.statistics.inference import LEVEL
from analysis.statistics.stability import above_floor
from analysis.tables import tab_separated
from common.command_line import terminal_table
from common.files import make_folder, write_bytes

FOUND_AGAIN = 0.9
"""Cosine from which on two features count as the same."""


@dataclass(frozen=True, eq=False)
class FeatureStability:
    """How features match those of the same autoencoder with another seed."""

    cosine: np.ndarray  # of each living feature's direction with its partner in a one-to-one matching, (alive,)
    mean: Estimate
    found_again: Estimate  # share of living features with a partner at `FOUND_AGAIN` or more
    chance: float  # mean cosine of as many random directions, matched in the same way
    floor: np.ndarray
    """The cosines of two autoencoders of a Gaussian of the same covariance and autocorrelation, (their alive,)."""
    gaussian: Estimate  # mean of these
    q: np.ndarray  # of each living feature's cosine against the floor, (alive,)
    stable: float  # share of living features that are above the floor, q <= 0.05


def stability(own: np.ndarray, others: np.ndarray, floor: np.ndarray, seed: int) -> FeatureStability:
    """Match features one to one with those of another seed, so that the sum of their cosines is largest.

    Intervals are over features: how much other features of the same two trainings would differ, not other trainings.

    Args:
        own: directions of the living features, of length 1, (F, U).
        others: of the other autoencoder's living features, (G, U).
        floor: what `matched` gives for the living features of two autoencoders that were fitted to a Gaussian.
    """
    cosine = matched(own, others)
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(directions.shape) for directions in (own, others)]
    chance = matched(*(vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in drawn))
    q = above_floor(cosine, floor)
    return FeatureStability(
        cosine, _over_features(cosine, random), _over_features(cosine >= FOUND_AGAIN, random), float(chance.mean()),
        floor, _over_features(floor, random), q, float((q <= LEVEL).mean()) if len(q) else float("nan"),
    )  # fmt: skip


def matched(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosine of each feature, (F, U), with its one-to-one partner among others, (G, U): (F,).

    It is 0 without a partner, where there are fewer others.
    """
    from scipy.optimize import linear_sum_assignment

    cosines = own @ others.T
    rows, columns = linear_sum_assignment(-cosines)
    best = np.zeros(len(own))
    best[rows] = cosines[rows, columns]
    return best


def _over_features(numbers: np.ndarray, random: np.random.Generator) -> Estimate:
    if len(numbers) < 2:
        return Estimate(float(np.mean(numbers)) if len(numbers) else float("nan"), float("nan"), float("nan"))
    drawn = [numbers[random.integers(len(numbers), size=len(numbers))].mean() for _ in range(RESAMPLES)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(float(numbers.mean()), float(low), float(high))


Row = dict[str, Any]
"""A row of a table. Ends of 95% intervals are `_low` and `_high`; numbers that are not known are NaN."""


_UNKNOWN = Estimate(math.nan)


def _ends(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True, eq=False)
class Tested:
    """Everything that is known of the dictionaries of one layer."""

    fitted: dict[str, Fitted]
    usages: dict[str, Usage]  # of the test states, by name
    units: Units  # of intervals over the test states
    spliced: SplicedRun | None  # what splicing in changes; None if nothing was spliced
    stabilities: dict[tuple[str, str], FeatureStability]  # by the names of an autoencoder and its other seed

    def scores(self) -> list[Row]:
        """Return a row for each dictionary on the test episodes.

        `k` is of the features of a state that were wanted, `active` of those that a state has; `alive` of features that
        are active in any state. `unexplained` is the share of the variance that reconstructions do not explain. If
        spliced, `kl` is the divergence of the policy's actions from those on the recorded state in nats, `kl_kept` the
        share of that caused by the mean state that is avoided, 1 if perfect; `value` the absolute difference of the
        critic's value, and `value_share` the same in its standard deviations.
        """
        rows = []
        for name, fitted in self.fitted.items():
            plan, dictionary, usage, run = fitted.plan, fitted.dictionary, self.usages[name], self.spliced
            rows.append(
                {
                    "name": plan.name, "layer": plan.layer, "kind": plan.kind, "features": dictionary.features,
                    "k": dictionary.k, "seed": plan.seed, "active": usage.active, "alive": usage.alive,
                    **_ends("unexplained", usage.unexplained), **_ends("kl", run.kl(name) if run else _UNKNOWN),
                    "kl_kept": run.kl_kept(name).value if run else math.nan,
                    **_ends("value", run.value(name) if run else _UNKNOWN),
                    "value_share": run.value_share(name) if run else math.nan,
                }
            )  # fmt: skip
        return rows

    def comparisons(self) -> list[Row]:
        """Return a row for each autoencoder and each baseline of its layer and k, k-means of its width.

        They say how much less error and divergence the autoencoder has.
        """
        rows = []
        for (name, fitted), (baseline, other) in itertools.product(self.fitted.items(), repeat=2):
            plan, its = fitted.plan, other.plan
            alike = (plan.layer, plan.k) == (its.layer, its.k) and (
                its.kind != "k_means" or plan.features == its.features
            )
            if its.kind in BASELINES and plan.kind not in BASELINES and plan.original is None and alike:
                usage = self.usages[name]
                less = self.units.mean(self.usages[baseline].error - usage.error, usage.deviation)
                kl_less = self.spliced.kl_less(name, baseline) if self.spliced else _UNKNOWN
                names = {"autoencoder": name, "baseline": baseline}
                rows.append({**names, **_ends("unexplained_less", less), **_ends("kl_less", kl_less)})
        return rows

    def stability(self) -> list[Row]:
        """Return a row for each autoencoder and the same with another seed; columns are fields of `FeatureStability`.

        `cosine` and `gaussian` are means.
        """
        return [
            {
                "autoencoder": name, "other": other, **_ends("cosine", stability.mean),
                **_ends("found_again", stability.found_again), "chance": stability.chance,
                **_ends("gaussian", stability.gaussian), "stable": stability.stable,
            }
            for (name, other), stability in self.stabilities.items()
        ]  # fmt: skip


CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"
_LAYOUT_OF = "6.0.0"
RESULTS_FILE = "sparse.json"
CURVES_FILE = "curves.jsonl"
SAE_LENS_FOLDER = "sae_lens"
"""Folder with a folder of each autoencoder in the layout of SAELens."""


def sae_lens_files(dictionary: SparseDictionary) -> dict[str, bytes]:
    """Return the contents of cfg.json and sae_weights.safetensors, by name, in raw activation units.

    Raises:
        ValueError: it is no autoencoder.
    """
    if dictionary.kind not in AUTOENCODERS or dictionary.encoder is None or dictionary.encoder_bias is None:
        raise ValueError(f"a dictionary of kind {dictionary.kind} has no encoder")
    source, is_topk = dictionary.source, dictionary.kind == "topk"
    config = {
        "architecture": "topk" if is_topk else "jumprelu", "d_in": dictionary.units, "d_sae": dictionary.features,
        "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": True, "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": _LAYOUT_OF, "sae_lens_training_version": None, "model_name": source.policy,
            "hook_name": source.layer, "dataset_path": source.dump, "kind": dictionary.kind,
            "features_of_a_state": dictionary.k,
        },
    }  # fmt: skip
    weights = {
        "W_enc": dictionary.encoder.T, "b_enc": dictionary.encoder_bias, "W_dec": dictionary.decoder,
        "b_dec": dictionary.centre,
    }  # fmt: skip
    if is_topk:
        config["k"] = dictionary.k
    else:
        assert dictionary.threshold is not None
        weights["threshold"] = dictionary.threshold
    content = orjson.dumps(config, option=orjson.OPT_INDENT_2)
    return {
        CONFIG_FILE: content,
        WEIGHTS_FILE: safetensors.numpy.save({n: np.ascontiguousarray(w) for n, w in weights.items()}),
    }


def save(folder: RunFolder, results: Sequence[Tested], metadata: DumpMetadata, split: Split) -> None:
    """Write all files of a run."""
    rows = [row for result in results for row in result.scores()]
    comparisons = [row for result in results for row in result.comparisons()]
    stabilities = [row for result in results for row in result.stability()]
    content = {
        "policy": metadata.policy, "train_episodes": split.train, "test_episodes": split.test,
        "intervals_are_over": {"life": "lives", "episode": "episodes"}[results[0].units.name],
        "scores": rows,
        "comparisons": comparisons,
        "stability": stabilities,
    }  # fmt: skip
    folder.save_json(RESULTS_FILE, content)
    for name, some in (("scores", rows), ("comparisons", comparisons), ("stability", stabilities)):
        if some:
            folder.save_text(f"sparse_{name}.tsv", tab_separated(some))
    fitted = {name: trained for result in results for name, trained in result.fitted.items()}
    for name, one in fitted.items():
        write_dictionary(folder.path / f"{name}.safetensors", one.dictionary)
        if one.plan.kind in AUTOENCODERS:
            make_folder(folder.path / SAE_LENS_FOLDER / name)
            for file, written in sae_lens_files(one.dictionary).items():
                write_bytes(folder.path / SAE_LENS_FOLDER / name / file, written)
    lines = [{"name": name, **asdict(epoch)} for name, one in fitted.items() for epoch in one.curve]
    folder.save_text(CURVES_FILE, "".join(orjson.dumps(line).decode() + "\n" for line in lines))
    reported = [name for name, one in fitted.items() if one.plan.kind in AUTOENCODERS and not one.plan.original]
    usages = {name: usage for result in results for name, usage in result.usages.items()}
    folder.save_figure("training_curves.png", training_curves({name: fitted[name].curve for name in reported}))
    folder.save_figure("feature_density.png", density_histogram({n: usages[n].density for n in reported}))
    folder.save_figure("reconstruction.png", scores_figure([r for r in rows if not fitted[r["name"]].plan.original]))
    pairs = {f"{a} and {b}": stability for result in results for (a, b), stability in result.stabilities.items()}
    if pairs:
        folder.save_figure("stability.png", stability_histogram(pairs))


def headline(results: Sequence[Tested]) -> Table:
    """Return a table of all dictionaries, without other seeds."""
    rows = []
    for result in results:
        for row in result.scores():
            if result.fitted[row["name"]].plan.original:
                continue
            spliced = ("-",) * 3
            if result.spliced is not None:
                spliced = f"{row['kl']:.4f}", f"{row['kl_kept']:.1%}", f"{row['value']:.4f}"
            rows.append(
                (
                    row["name"],
                    f"{row['active']:.1f}",
                    f"{row['alive']:,} of {row['features']:,}",
                    f"{row['unexplained']:.2%}",
                    *spliced,
                )
            )
    return terminal_table(
        ("dictionary", "features a state", "alive", "not explained", "KL, nats", "KL of the mean avoided", "value"),
        rows,
        left=("dictionary",),
        title="states that no dictionary was fitted to",
    )


_ROW = 0.27
_BINS = np.linspace(-6, 0, 49)


def training_curves(curves: Mapping[str, Sequence[Epoch]]) -> Figure:
    """Draw what each autoencoder left unexplained, and its dead features, against states seen."""
    with style():
        figure = new_figure(9, 3.6)
        left, right = figure.subplots(1, 2)
        for number, (name, epochs) in enumerate(curves.items()):
            seen = [epoch.states for epoch in epochs]
            look = {"color": cluster_colour(number), "marker": "o", "markersize": 3, "linewidth": 1}
            left.plot(seen, [epoch.unexplained for epoch in epochs], label=name, **look)
            right.plot(seen, [epoch.dead for epoch in epochs], label=name, **look)
        left.set(yscale="log", xlabel="states seen in training", ylabel="share of the variance not explained")
        right.set(xlabel="states seen in training", ylabel="dead features")
        right.set_ylim(bottom=0)
        left.set_title("Reconstruction of training states")
        right.set_title("Features not active for long")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def density_histogram(densities: Mapping[str, np.ndarray]) -> Figure:
    """Draw how many features of each autoencoder are active how often."""
    with style():
        figure = new_figure(7, 1.2 + 1.3 * len(densities))
        panels = figure.subplots(len(densities), 1, sharex=True, squeeze=False)[:, 0]
        for number, (panel, (name, density)) in enumerate(zip(panels, densities.items(), strict=True)):
            alive = density[density > 0]
            panel.hist(np.log10(alive), bins=list(_BINS), color=cluster_colour(number))
            panel.set_title(f"{name}: {len(alive):,} of {len(density):,} features are ever active", loc="left")
            panel.set_ylabel("features")
        panels[-1].set_xlabel("share of the test states in which a feature is active")
        panels[-1].set_xticks(range(-6, 1), [f"$10^{{{power}}}$" for power in range(-6, 1)])
        return figure


def scores_figure(rows: Sequence[Row]) -> Figure:
    """Draw what every dictionary leaves unexplained, and what splicing it in changes, with 95% intervals."""
    spliced = any(math.isfinite(row["kl"]) for row in rows)
    panels = [("unexplained", "share of the variance not explained")]
    panels += [("kl", "KL of the actions, nats"), ("value", "difference of the value")] if spliced else []
    with style():
        figure = new_figure(4.2 + 2.6 * len(panels), 1.2 + _ROW * len(rows))
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        kinds = list(dict.fromkeys(row["kind"] for row in rows))
        for axis, (name, label) in zip(axes, panels, strict=True):
            for place, row in enumerate(rows):
                value = row[name]
                if not math.isfinite(value):
                    continue
                ends = [row[f"{name}_{end}"] for end in ("low", "high")]
                colour = cluster_colour(kinds.index(row["kind"]))
                axis.plot(value, place, "o", color=colour, markersize=5)
                axis.plot(ends, [place, place], color=colour, linewidth=1.5)
            axis.set(xscale="log", xlabel=label)
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.grid(axis="x", alpha=0.3)
        axes[0].set_yticks(range(len(rows)), [row["name"] for row in rows])
        axes[0].set_ylim(len(rows) - 0.5, -0.5)
        figure.suptitle("Reconstruction of states that no dictionary was fitted to")
        return figure


def stability_histogram(stabilities: Mapping[str, FeatureStability]) -> Figure:
    """Draw the cosines of features with their partners in another seed's autoencoder, and those on a Gaussian."""
    bins = list(np.linspace(-0.2, 1, 61))
    with style():
        figure = new_figure(7, 1.2 + 1.5 * len(stabilities))
        panels = figure.subplots(len(stabilities), 1, sharex=True, squeeze=False)[:, 0]
        for number, (panel, (name, stability)) in enumerate(zip(panels, stabilities.items(), strict=True)):
            panel.hist(stability.cosine, bins=bins, color=cluster_colour(number), label="these states")
            panel.hist(stability.floor, bins=bins, histtype="step", color="black", label="a Gaussian like them")
            panel.set_title(f"{name}: {stability.stable:.0%} above the Gaussian", loc="left")
            panel.legend(loc="upper left")
            panel.set_ylabel("features")
        panels[-1].set_xlabel("cosine with the partner in the autoencoder with another seed")
        return figure


def attribution_scatter(attributions: Attributions) -> Figure:
    """Draw measured against predicted changes for every feature taken out of a recorded tick."""
    with style():
        figure = new_figure(8, 4)
        labels = ("value", "log-probability of the action, nats")
        for output, (axis, label) in enumerate(zip(figure.subplots(1, 2), labels, strict=True)):
            predicted, measured = attributions.predicted[output], attributions.measured[output]
            estimate = attributions.correlation(output)
            axis.scatter(predicted, measured, s=4, alpha=0.4, color=cluster_colour(output), linewidths=0)
            ends = [min(predicted.min(), measured.min()), max(predicted.max(), measured.max())]
            axis.plot(ends, ends, color="#888888", linewidth=0.8)
            axis.set(xlabel="predicted: gradient times activation", ylabel="measured")
            axis.set_title(f"{label}\nr {estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})")
        return figure
