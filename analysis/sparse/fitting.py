"""Fit all dictionaries of a run, one after the other; what is finished is kept for --resume.

Baselines are not learnt by gradient descent: their features are written by matching pursuit. PCA and ICA have no more
features than the layer has units; k-means has as many as the autoencoder. All get the same k.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from activation_store.layers import UNTRAINED
from activation_store.sparse_dictionary import (
    BASELINES,
    DictionaryKind,
    DictionarySource,
    SparseDictionary,
    read_dictionary,
    write_dictionary,
)
from analysis.sparse.settings import SparseSettings, features_of
from analysis.sparse.states import SparseStates
from analysis.sparse.training import Epoch, FitPlan, Normalisation, normalisation, train
from common.checked_json import read_small_json, with_checksum, without_checksum
from common.files import PARTIAL_SUFFIX, make_folder, write_json
from common.progress_view import progress
from common.user_error import UserError

_ICA_SAMPLE = 20_000
_ICA_STEPS = 200
_VARIANCE_KEPT = 1e-6
_BATCH_OF_STATES = 4096
_SMALLEST = 1e-12
PLAN_FILE = "plan.json"
GAUSSIAN = "gaussian"
"""What names of autoencoders begin with that are fitted to a Gaussian instead of the states."""
SUFFIX = ".safetensors"
_CURVE = ".curve.json"
_UNFINISHED = ".training"


def baseline(
    kind: DictionaryKind, states: np.ndarray, features: int, k: int, source: DictionarySource
) -> SparseDictionary:
    """Fit a baseline.

    Args:
        kind: pca, ica or k_means.
        states: to fit to, (B, U) float32.
        features: of k_means; the others have as many as the states have dimensions.
        source: what it is fitted to; its seed is used.

    Raises:
        UserError: the layer has the same state in every record.
    """
    centre = states.mean(axis=0, dtype=np.float64)
    if kind == "k_means":
        atoms = _k_means(states, centre, features, source.seed)
    else:
        atoms = _ica(states, centre, source.seed) if kind == "ica" else _principal(states, centre)[1]
    atoms = atoms[np.linalg.norm(atoms, axis=1) > _SMALLEST]
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return SparseDictionary(kind, min(k, len(atoms)), atoms.astype(np.float32), centre.astype(np.float32), source)


def _principal(states: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return variances, descending, and components, (D,) and (D, U), of dimensions that vary at all."""
    total = np.zeros((states.shape[1],) * 2)
    for start in range(0, len(states), _BATCH_OF_STATES):
        chunk = states[start : start + _BATCH_OF_STATES] - centre
        total += chunk.T @ chunk
    values, vectors = np.linalg.eigh(total / len(states))
    kept = values > _VARIANCE_KEPT * values[-1]
    if not values[-1] > 0:
        raise UserError("the layer has the same state in every record, so it has no features")
    return values[kept][::-1], vectors[:, kept].T[::-1]


def _ica(states: np.ndarray, centre: np.ndarray, seed: int) -> np.ndarray:
    """Return the directions along which independent components add to the states, (D, U)."""
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    values, vectors = _principal(states, centre)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(states))[:_ICA_SAMPLE])
    white = (states[chosen] - centre) @ (vectors / np.sqrt(values)[:, None]).T  # (N, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best found after many steps will do as a baseline
        ica = FastICA(whiten=False, max_iter=_ICA_STEPS, random_state=seed).fit(white)
    return ica.mixing_.T @ (vectors * np.sqrt(values)[:, None])


def _k_means(states: np.ndarray, centre: np.ndarray, features: int, seed: int) -> np.ndarray:
    """Return the directions from the centre to the centres of clusters, (features, U)."""
    from sklearn.cluster import MiniBatchKMeans

    centred = (states - centre).astype(np.float32)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), _SMALLEST)
    k_means = MiniBatchKMeans(features, batch_size=_BATCH_OF_STATES, n_init=1, random_state=seed).fit(centred)
    return k_means.cluster_centers_.astype(np.float64)


def plans(settings: SparseSettings, units: int, *, untrained: bool = False) -> list[FitPlan]:
    """Return the dictionaries to fit to the states of a layer of this many units, baselines first.

    Args:
        untrained: whether to list those of the untrained network beside the policy, which have one seed.
    """
    by_name: dict[str, FitPlan] = {}
    prefix = f"{UNTRAINED}_" if untrained else ""

    def add(name: str, kind: DictionaryKind, features: int, k: int, number: int = 0) -> None:
        original, seed = prefix + name, settings.seed + number
        name = original + (f"_seed{seed}" if number else "")
        layer, other = prefix + settings.layer, original if number else None
        by_name.setdefault(name, FitPlan(kind, features, k, seed, settings.epochs, name, layer, other))

    for k in settings.sparsities:
        for kind in BASELINES:
            for width in settings.widths if kind == "k_means" else settings.widths[:1]:
                name = f"{kind}_{width}_k{k}" if kind == "k_means" else f"{kind}_k{k}"
                add(name, kind, features_of(width, units), k)
    for width in settings.widths:
        for k in settings.sparsities:
            for kind in settings.kinds:
                for number in range(1 if untrained else settings.seeds):
                    add(f"{kind}_{width}_k{k}", kind, features_of(width, units), k, number)
    return list(by_name.values())


def floor_plans(wanted: Sequence[FitPlan]) -> list[FitPlan]:
    """Return the plans to fit to a Gaussian: each autoencoder that has another seed, and the first other seed."""
    pairs: dict[str, FitPlan] = {}
    for plan in wanted:
        if plan.original is not None:
            pairs.setdefault(plan.original, plan)
    originals = {plan.name: plan for plan in wanted}
    return [
        replace(plan, name=f"{GAUSSIAN}_{plan.name}", original=original and f"{GAUSSIAN}_{original}")
        for name, other in pairs.items()
        for plan, original in ((originals[name], None), (other, name))
    ]


@dataclass(frozen=True, eq=False)
class Fitted:
    """One fitted dictionary."""

    plan: FitPlan
    dictionary: SparseDictionary  # in raw units
    curve: tuple[Epoch, ...]  # of its training; empty for baselines


def claim(settings: SparseSettings, described: Mapping[str, Any]) -> Path:
    """Return the folder where finished parts wait, made if it is not there.

    Raises:
        UserError: it is left from an interrupted run and --resume is not given, or the run had other arguments.
    """
    folder = settings.training_folder
    path = folder / PLAN_FILE
    if path.exists():
        if not settings.resume:
            raise UserError(f"{folder} is left from an interrupted run: add --resume to continue it, or delete it")
        content: Any = read_small_json(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} is damaged: delete {folder} and start the run again")
        if without_checksum(content, str(path)) != without_checksum(with_checksum(dict(described)), str(path)):
            raise UserError(f"{folder} was started with other arguments or another dump: use those, or delete it")
        return folder
    make_folder(folder)
    if any(not path.name.endswith(PARTIAL_SUFFIX) for path in folder.iterdir()):
        raise UserError(f"{folder} holds other files, and would be removed in the end: move it away")
    write_json(path, with_checksum(dict(described)))
    return folder


def fit(
    folder: Path, wanted: Sequence[FitPlan], states: SparseStates, source: DictionarySource,
    on_epoch: Callable[[str, Epoch], None], console: Console,
) -> dict[str, Fitted]:  # fmt: skip
    """Fit dictionaries to the states of one layer, or read those that an interrupted run finished; by name.

    Args:
        source: of all dictionaries; layer and seed are filled in.
    """
    normal: Normalisation | None = None
    like: dict[tuple[DictionaryKind, int], SparseDictionary] = {}
    fitted: dict[str, Fitted] = {}
    for plan in wanted:
        path = folder / f"{plan.name}{SUFFIX}"
        own = replace(source, layer=plan.layer, seed=plan.seed)
        if path.exists():
            fitted[plan.name] = Fitted(plan, read_dictionary(path), _read_curve(folder, plan))
            continue
        curve: tuple[Epoch, ...] = ()
        if plan.kind in BASELINES:
            key = plan.kind, plan.features if plan.kind == "k_means" else 0
            if key not in like:
                with progress(f"fitting {plan.name}", console=console):
                    like[key] = baseline(plan.kind, states.values, plan.features, plan.k, own)
            dictionary = replace(like[key], k=min(plan.k, like[key].features))
        else:
            normal = normal or normalisation(states.values, source.seed)
            unfinished = folder / f"{plan.name}{_UNFINISHED}"
            with progress(f"training {plan.name}", "states", console=console) as show:
                training = train(plan, states.values, normal, unfinished, partial(on_epoch, plan.name), show)
            dictionary, curve = training.dictionary(own), tuple(training.curve)
            write_json(folder / f"{plan.name}{_CURVE}", [asdict(epoch) for epoch in curve])
        write_dictionary(path, dictionary)
        (folder / f"{plan.name}{_UNFINISHED}").unlink(missing_ok=True)
        fitted[plan.name] = Fitted(plan, dictionary, curve)
    return fitted


def _read_curve(folder: Path, plan: FitPlan) -> tuple[Epoch, ...]:
    path = folder / f"{plan.name}{_CURVE}"
    if plan.kind in BASELINES:
        return ()
    content: Any = read_small_json(path)
    try:
        return tuple(Epoch(**line) for line in content)
    except TypeError:
        raise UserError(f"{path} is damaged: delete it and {plan.name}{SUFFIX}, and resume again") from None
