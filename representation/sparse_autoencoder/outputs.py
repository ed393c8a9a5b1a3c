"""What a run of sparse autoencoders leaves: dictionaries, tables and figures, and the lines that a terminal shows."""

from collections.abc import Sequence
from dataclasses import asdict

import orjson
from rich.markup import escape
from rich.table import Table

from activation_store.files import make_folder
from activation_store.schema import DumpMetadata
from activation_store.sparse_dictionary import AUTOENCODERS, write_dictionary
from analysis.runs.run_folder import RunFolder
from representation.sparse_autoencoder import figures
from representation.sparse_autoencoder.report import table
from representation.sparse_autoencoder.sae_lens import sae_lens_files
from representation.sparse_autoencoder.states import Split
from representation.sparse_autoencoder.tested import Tested

RESULTS_FILE = "sparse.json"
CURVES_FILE = "curves.jsonl"
SAE_LENS_FOLDER = "sae_lens"
"""Folder with a folder of each autoencoder in the layout of SAELens."""


def save(folder: RunFolder, results: Sequence[Tested], metadata: DumpMetadata, split: Split) -> None:
    """Write all files of a run."""
    rows = [row for each in results for row in each.scores()]
    comparisons = [row for each in results for row in each.comparisons()]
    stabilities = [row for each in results for row in each.stability()]
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
            folder.save_text(f"sparse_{name}.tsv", table(some))
    fitted = {name: each for result in results for name, each in result.fitted.items()}
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
    fitted = {name: each for result in results for name, each in result.fitted.items()}
    reported = [name for name, each in fitted.items() if each.entry.kind in AUTOENCODERS and not each.entry.original]
    usages = {name: each for result in results for name, each in result.usages.items()}
    folder.save_figure("training_curves.png", figures.training_curves({name: fitted[name].curve for name in reported}))
    folder.save_figure("feature_density.png", figures.density_histogram({n: usages[n].density for n in reported}))
    rows = [row for each in results for row in each.scores() if not fitted[row.name].entry.original]
    folder.save_figure("reconstruction.png", figures.scores(rows))
    found = {f"{a} and {b}": each for result in results for (a, b), each in result.stabilities.items()}
    if found:
        folder.save_figure("stability.png", figures.stability_histogram(found))


def headline(results: Sequence[Tested]) -> Table:
    """Return a table of all dictionaries, without other seeds."""
    shown = Table(title="states that no dictionary was fitted to", title_justify="left")
    names = ("dictionary", "features a state", "alive", "not explained", "KL, nats", "KL of the mean avoided", "value")
    for name in names:
        shown.add_column(name, justify="left" if name == "dictionary" else "right", no_wrap=name == "dictionary")
    for result in results:
        for row in result.scores():
            if result.fitted[row.name].entry.original:
                continue
            spliced = ("-",) * 3
            if result.spliced is not None:
                spliced = f"{row.kl:.4f}", f"{row.kl_kept:.1%}", f"{row.value:.4f}"
            shown.add_row(
                escape(row.name), f"{row.active:.1f}", f"{row.alive:,} of {row.features:,}", f"{row.unexplained:.2%}",
                *spliced,
            )  # fmt: skip
    return shown
