"""What a run of sparse autoencoders leaves: dictionaries, tables and figures, and the lines that a terminal shows.

Autoencoders are also written in the layout of SAELens 6, so that its tools can load them: `SAE.load_from_disk(FOLDER)`.
cfg.json names the architecture, sae_weights.safetensors has the weights. BatchTopK and Matryoshka have a threshold once
they are trained, as JumpReLU has, and are written as such.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import orjson
import safetensors.numpy
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from rich.table import Table

from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import AUTOENCODERS, SparseDictionary, write_dictionary
from analysis.figures.style import cluster_colour, new_figure, style
from analysis.runs.run_folder import RunFolder
from analysis.sparse.attribution import Attributions
from analysis.sparse.report import FeatureStability, Row, Tested
from analysis.sparse.states import Split
from analysis.sparse.training import Epoch
from analysis.tables import tab_separated
from common.command_line import terminal_table
from common.files import make_folder

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
                folder.save_bytes(f"{SAE_LENS_FOLDER}/{name}/{file}", written)
    lines = [{"name": name, **asdict(epoch)} for name, one in fitted.items() for epoch in one.curve]
    folder.save_text(CURVES_FILE, "".join(orjson.dumps(line).decode() + "\n" for line in lines))
    _draw(folder, results)


def _draw(folder: RunFolder, results: Sequence[Tested]) -> None:
    fitted = {name: trained for result in results for name, trained in result.fitted.items()}
    reported = [
        name for name, trained in fitted.items() if trained.plan.kind in AUTOENCODERS and not trained.plan.original
    ]
    usages = {name: usage for result in results for name, usage in result.usages.items()}
    folder.save_figure("training_curves.png", training_curves({name: fitted[name].curve for name in reported}))
    folder.save_figure("feature_density.png", density_histogram({n: usages[n].density for n in reported}))
    rows = [row for result in results for row in result.scores() if not fitted[row["name"]].plan.original]
    folder.save_figure("reconstruction.png", scores_figure(rows))
    stabilities = {f"{a} and {b}": stability for result in results for (a, b), stability in result.stabilities.items()}
    if stabilities:
        folder.save_figure("stability.png", stability_histogram(stabilities))


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
