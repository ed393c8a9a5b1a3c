"""A run of sparse autoencoders: fit, test, splice in, compare, and write what was found."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from activation_store.layers import UNTRAINED
from activation_store.recording import check_recorded
from activation_store.schema import METADATA_FILE, DumpMetadata
from activation_store.sparse_dictionary import AUTOENCODERS, DictionarySource
from analysis.runs.record_limit import check_fits, note
from analysis.runs.run_folder import RunFolder, plain, refuse_existing_run
from analysis.sparse import describing, outputs
from analysis.sparse.fitting import GAUSSIAN, Fitted, claim, fit, floor_plans, plans
from analysis.sparse.outputs import Tested, matched, stability
from analysis.sparse.scores import Units, Usage, usage
from analysis.sparse.settings import BYTES_A_RECORD, SparseSettings
from analysis.sparse.splicing import RecordedPolicy, load_recorded_policy, load_untrained, reconstructions, splice
from analysis.sparse.states import Split, check_enough, read_states, split_episodes
from analysis.sparse.training import Epoch, FitPlan
from common.files import sha256
from common.progress_view import say, step
from common.weights_and_biases import mirrored

TESTED = 20_000
"""States of the test episodes that dictionaries are tested on, at most."""

_NOT_SETTINGS = ("resume", "output_dir", "policies_dir", "track", "wandb")
"""Options that do not change the results."""


def check_dump(settings: SparseSettings, metadata: DumpMetadata) -> RecordedPolicy | None:
    """Refuse what does not fit the dump before anything is trained; returns the policy if it is spliced.

    Raises:
        UserError: the dump lacks a layer or what splicing needs, or the widths do not fit.
    """
    wanted = [settings.layer, *([f"{UNTRAINED}_{settings.layer}"] if settings.untrained else [])]
    for layer in wanted:
        check_recorded(settings.dump, metadata, layer)
    if settings.meaning:
        describing.described_features(settings)  # refuses names that are not features
    settings.check_units(metadata.layers[settings.layer])
    check_fits(settings.dump, min(metadata.records, settings.max_records), BYTES_A_RECORD)
    refuse_existing_run(settings.run_folder)
    if not settings.splice:
        return None
    return load_recorded_policy(settings.dump, metadata, settings.policies_dir, settings.layer)


def train_autoencoders(settings: SparseSettings, metadata: DumpMetadata, recorded: RecordedPolicy | None) -> Path:
    """Fit and test everything that is asked for; returns the run's folder."""
    console = Console()
    split = split_episodes(settings.dump, metadata, settings.seed, settings.max_records)
    if metadata.records > settings.max_records:
        used = f"{len(split.train)} episodes are used for training and {len(split.test)} for testing"
        note(settings.dump, metadata.records, used)
    described = _described(settings, split)
    waiting = claim(settings, described)
    units = metadata.layers[settings.layer]
    results = [_tested(settings, metadata, split, waiting, plans(settings, units), recorded, console)]
    if settings.untrained:
        wanted = plans(settings, units, untrained=True)
        twin = load_untrained(settings.dump, metadata, recorded) if recorded else None
        if recorded and twin is None:
            console.print("the untrained network cannot be built again as it was recorded, so it is not spliced")
        results.append(_tested(settings, metadata, split, waiting, wanted, twin, console))
    meaning = (
        _described_features(settings, metadata, split, results[0], recorded, console) if settings.meaning else None
    )
    run = {**described, "input": {str(settings.dump): sha256(settings.dump / METADATA_FILE)}}
    with RunFolder(settings.run_folder, run) as folder:
        with step(console, "writing tables and drawing"):
            outputs.save(folder, results, metadata, split)
            if meaning is not None:
                describing.save(folder, meaning, settings, metadata)
        console.print(outputs.headline(results))
        if meaning is not None:
            say(console, "\n".join(meaning.lines()))
    shutil.rmtree(settings.training_folder)
    return settings.run_folder


def _described_features(
    settings: SparseSettings, metadata: DumpMetadata, split: Split, tested: Tested, recorded: RecordedPolicy | None,
    console: Console,
) -> describing.Described:  # fmt: skip
    """Describe the features of the first autoencoder that was asked for."""
    first = next(trained for trained in tested.fitted.values() if trained.plan.kind in AUTOENCODERS)
    name = first.plan.name
    again = np.full((2, first.dictionary.features), np.nan)
    for (own, _), similarity in tested.stabilities.items():
        if own == name:
            again[:, tested.usages[name].density > 0] = similarity.cosine, similarity.q
            break
    return describing.describe(settings, metadata, split, name, first.dictionary, again, recorded, console)


def _tested(
    settings: SparseSettings, metadata: DumpMetadata, split: Split, waiting: Path, wanted: Sequence[FitPlan],
    recorded: RecordedPolicy | None, console: Console,
) -> Tested:  # fmt: skip
    """Fit the dictionaries of one layer, and test them."""
    layer = wanted[0].layer
    with step(console, f"reading {layer} of {len(split.train)} episodes") as show:
        states = read_states(settings.dump, layer, split.train, show)
    check_enough(settings.dump, len(states), max(plan.features for plan in wanted))
    with mirrored(settings.tracking, settings.run_folder.name, plain(settings), settings.output_dir) as mirror:

        def log(name: str, epoch: Epoch) -> None:
            mirror.log({f"{name}/{key}": value for key, value in vars(epoch).items()})

        source, pairs = DictionarySource(
            run=settings.run_folder.name, dump=settings.dump.resolve().name,
            dump_sha256=sha256(settings.dump / METADATA_FILE), policy=metadata.policy,
            checkpoint_sha256=metadata.checkpoint_sha256, layer=settings.layer, records=len(states),
            lives=len(states.lives), episodes=len(np.unique(states.episodes)), seed=settings.seed,
        ), floor_plans(wanted)  # fmt: skip
        fitted = fit(waiting, wanted, states, source, log, console)
        drawn = states.surrogate(settings.seed) if pairs else states
        gaussian = fit(waiting, pairs, drawn, source, log, console)
    mean = states.values.mean(axis=0, dtype=np.float64).astype(np.float32)
    del states, drawn
    with step(console, f"testing on {len(split.test)} other episodes") as show:
        test = read_states(settings.dump, layer, split.test).sample(TESTED, settings.seed)
        intervals = Units.of(test.lives.index, test.episodes, settings.seed)
        usages = {}
        for number, (name, trained) in enumerate(fitted.items()):
            usages[name] = usage(trained.dictionary, test.values, intervals)
            show((number + 1) / len(fitted))
        drawn = test.surrogate(settings.seed) if pairs else test
        gaussian_usages = {
            name: usage(trained.dictionary, drawn.values, intervals) for name, trained in gaussian.items()
        }
    spliced = None
    if recorded is not None:
        with step(console, "splicing into recorded ticks") as show:
            rebuilds = reconstructions({name: trained.dictionary for name, trained in fitted.items()})
            spliced = splice(settings.dump, recorded, settings.layer, rebuilds, split.test, mean, settings.seed, show)
    floors = {own: matched(*living) for (own, _), living in _pairs(gaussian, gaussian_usages).items()}
    stabilities = {
        names: stability(*living, floors[f"{GAUSSIAN}_{names[0]}"], settings.seed)
        for names, living in _pairs(fitted, usages).items()
    }
    return Tested(fitted, usages, intervals, spliced, stabilities)


def _pairs(fitted: dict[str, Fitted], usages: dict[str, Usage]) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
    """Return the directions of the living features of each autoencoder and its other seeds, (F, U) and (G, U)."""
    living = {name: trained.dictionary.decoder[usages[name].density > 0] for name, trained in fitted.items()}
    return {
        (original, name): (living[original], living[name])
        for name, trained in fitted.items()
        if (original := trained.plan.original) is not None
    }


def _described(settings: SparseSettings, split: Split) -> dict[str, Any]:
    """What decides the results: the arguments, the dump and the episodes."""
    return {
        "arguments": {name: value for name, value in plain(settings).items() if name not in _NOT_SETTINGS},
        "seed": settings.seed,
        "dump_sha256": sha256(settings.dump / METADATA_FILE),
        "train": list(split.train),
        "test": list(split.test),
    }
