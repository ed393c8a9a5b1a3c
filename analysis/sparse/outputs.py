"""What a run of sparse autoencoders leaves: dictionaries, tables and figures, and the lines that a terminal shows.

Autoencoders are also written in the layout of SAELens 6, so that its tools can load them: `SAE.load_from_disk(FOLDER)`.
cfg.json names the architecture, sae_weights.safetensors has the weights. BatchTopK and Matryoshka have a threshold once
they are trained, as JumpReLU has, and are written as such.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import orjson
import safetensors.numpy
from rich.table import Table

from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import AUTOENCODERS, SparseDictionary, write_dictionary
from analysis.runs.run_folder import RunFolder
from analysis.sparse import figures
from analysis.sparse.report import Tested
from analysis.sparse.states import Split
from analysis.tables import tab_separated
from common.files import make_folder
from common.terminal_table import terminal_table

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
        "scores": [asdict(row) for row in rows],
        "comparisons": [asdict(row) for row in comparisons],
        "stability": [asdict(row) for row in stabilities],
    }  # fmt: skip
    folder.save_json(RESULTS_FILE, content)
    for name, some in (("scores", rows), ("comparisons", comparisons), ("stability", stabilities)):
        if some:
            folder.save_text(f"sparse_{name}.tsv", tab_separated([vars(row) for row in some]))
    fitted = {name: trained for result in results for name, trained in result.fitted.items()}
    for name, one in fitted.items():
        write_dictionary(folder.path / f"{name}.safetensors", one.dictionary)
        if one.entry.kind in AUTOENCODERS:
            make_folder(folder.path / SAE_LENS_FOLDER / name)
            for file, written in sae_lens_files(one.dictionary).items():
                folder.save_bytes(f"{SAE_LENS_FOLDER}/{name}/{file}", written)
    lines = [{"name": name, **asdict(epoch)} for name, one in fitted.items() for epoch in one.curve]
    folder.save_text(CURVES_FILE, "".join(orjson.dumps(line).decode() + "\n" for line in lines))
    _draw(folder, results)


def _draw(folder: RunFolder, results: Sequence[Tested]) -> None:
    fitted = {name: trained for result in results for name, trained in result.fitted.items()}
    reported = [
        name for name, trained in fitted.items() if trained.entry.kind in AUTOENCODERS and not trained.entry.original
    ]
    usages = {name: usage for result in results for name, usage in result.usages.items()}
    folder.save_figure("training_curves.png", figures.training_curves({name: fitted[name].curve for name in reported}))
    folder.save_figure("feature_density.png", figures.density_histogram({n: usages[n].density for n in reported}))
    rows = [row for result in results for row in result.scores() if not fitted[row.name].entry.original]
    folder.save_figure("reconstruction.png", figures.scores(rows))
    stabilities = {f"{a} and {b}": stability for result in results for (a, b), stability in result.stabilities.items()}
    if stabilities:
        folder.save_figure("stability.png", figures.stability_histogram(stabilities))


def headline(results: Sequence[Tested]) -> Table:
    """Return a table of all dictionaries, without other seeds."""
    rows = []
    for result in results:
        for row in result.scores():
            if result.fitted[row.name].entry.original:
                continue
            spliced = ("-",) * 3
            if result.spliced is not None:
                spliced = f"{row.kl:.4f}", f"{row.kl_kept:.1%}", f"{row.value:.4f}"
            rows.append(
                (
                    row.name,
                    f"{row.active:.1f}",
                    f"{row.alive:,} of {row.features:,}",
                    f"{row.unexplained:.2%}",
                    *spliced,
                )
            )
    return terminal_table(
        ("dictionary", "features a state", "alive", "not explained", "KL, nats", "KL of the mean avoided", "value"),
        rows,
        left=("dictionary",),
        title="states that no dictionary was fitted to",
    )
