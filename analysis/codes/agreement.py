"""Whether networks divide the same ticks in the same way: by their own codes, and by groups fitted to their states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from activation_store.layers import SEMANTIC_CODE
from activation_store.lives import life_keys, number_lives, places_of
from activation_store.reader import Progress, read_identity
from activation_store.recording import record_again
from activation_store.schema import DumpMetadata, refuse_kept_memory
from activation_store.selection import Subsample
from agent_zoo.agent_settings import SHOWN
from agent_zoo.base import RecurrentPolicy
from agent_zoo.checkpoint import CheckpointInfo, build_untrained, load_checkpoint
from agent_zoo.checkpoint_files import policy_names, policy_path
from analysis.codes.content import hidden_layer
from analysis.codes.partitions import (
    LifeResamples,
    codebook,
    estimate_cells,
    k_means,
    normalised_information,
    perplexity,
    weighted_adjusted_rand,
)
from analysis.lives import Lives
from analysis.recorded.recorded_observation import check_shows_everything, packed_observation
from analysis.recorded.sequences import Parts, lives
from analysis.statistics.resampling import Estimate
from analysis.statistics.stability import gaussian_surrogate
from analysis.tables import tab_separated_lines
from common.progress_view import Step
from common.user_error import UserError

EVERY = 10
"""One record in so many of each life is compared; neighbouring ticks are nearly the same."""
_FEWEST = 100
_TOGETHER = 16
_ENCODING = ("encoder", "language_model", "language_model_revision", "embeddings_sha256")


Networks = dict[str, tuple[RecurrentPolicy, CheckpointInfo]]
"""Policies with a codebook, trained or not, by name."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What one network makes of N records."""

    name: str
    codes: int
    hidden: np.ndarray  # its hidden state, or the encoder's output if it has no memory, (N, units) float32
    code: np.ndarray  # number of its nearest code, (N,) int64


def load_networks(dump: Path, metadata: DumpMetadata, names: Sequence[str], folder: Path) -> Networks:
    """Load trainings that can see the lives of a dump.

    Raises:
        UserError: the dump lacks something, or a training is not there, has no codes, or sees the world in another way.
    """
    if metadata.origin != "game":
        raise UserError(f"{dump} holds simulated lives, which do not begin at birth: give a dump of played ones")
    refuse_kept_memory(dump, metadata)
    if SEMANTIC_CODE not in metadata.layers:
        raise UserError(f"{dump} holds no layer {SEMANTIC_CODE}: record a policy that has codes with --record standard")
    if (hidden := hidden_layer(metadata)) not in metadata.layers:
        raise UserError(f"{dump} holds no layer {hidden}, which k-means is fitted to: {record_again(dump, metadata)}")
    networks = {}
    for name in policy_names(folder, names):
        policy, info = load_checkpoint(policy_path(folder, name))
        if not policy.semantic:
            raise UserError(f"{name} has no codes: it was trained without --semantic.codes")
        _check_sees_the_same(name, info, dump, metadata)
        check_shows_everything(dump, info.layout)
        networks[name] = policy, info
    return networks


def _check_sees_the_same(name: str, info: CheckpointInfo, dump: Path, metadata: DumpMetadata) -> None:
    recorded, own = metadata.environment, {**SHOWN, **info.environment}
    task, own_task = recorded.get("task", {}), info.task
    encoding = _ENCODING if own_task.get("encoder") != "structural" else _ENCODING[:1]
    pairs = [
        ("agent", info.agent, metadata.agent),
        *((setting, own[setting], recorded.get(setting, default)) for setting, default in SHOWN.items()),
        *((f"task {setting}", own_task.get(setting), task.get(setting)) for setting in encoding),
    ]
    for setting, ours, theirs in pairs:
        if ours != theirs:
            raise UserError(
                f"{name} cannot see the lives of {dump} as its policy {metadata.policy} saw them: its {setting} is "
                f"{ours}, not {theirs}"
            )


def draw_lives(dump: Path, most: int, seed: int) -> tuple[np.ndarray, Subsample]:
    """Draw whole lives at random: slot, agent and episode of each, (L, 3) ascending, and which records are compared.

    Raises:
        UserError: too few records would be compared.
    """
    subsample = Subsample(EVERY, seed=seed)
    keys, index = number_lives(read_identity(dump))
    kept = np.maximum(0, -(-(np.bincount(index) - subsample.first_kept(keys)) // EVERY))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(kept))
    chosen = np.sort(order[np.cumsum(kept[order]) <= most])
    states = int(kept[chosen].sum())
    if states < _FEWEST or len(chosen) < 2:
        raise UserError(
            f"too few states: one record in {EVERY} of whole lives in {dump} gives {states} with --states {most}, and "
            f"{_FEWEST} are needed"
        )
    return keys[chosen], subsample


@torch.no_grad()
def replay(
    dump: Path, metadata: DumpMetadata, drawn: np.ndarray, subsample: Subsample, networks: Networks,
    progress: Progress | None = None,
) -> tuple[list[Seen], Lives]:  # fmt: skip
    """Show lives of a dump, as `draw_lives` returns them, to networks.

    Returns:
        What the recorded policy, then each network makes of the records compared; and their lives.
    """
    layer = hidden_layer(metadata)
    parts = Parts(
        layers=(layer, SEMANTIC_CODE), columns=("task", "legal"), leave_out=("reward", "value", "log_probability"),
        episodes=tuple(np.unique(drawn[:, 2]).tolist()), lives=tuple(map(tuple, drawn.tolist())),
    )  # fmt: skip
    hidden: list[list[np.ndarray]] = [[] for _ in range(1 + len(networks))]  # the recorded policy's first
    code: list[list[np.ndarray]] = [[] for _ in hidden]
    life, before = [], 0
    for batch in lives(dump, batch=_TOGETHER, parts=parts, progress=progress):
        starts = np.cumsum(batch.lengths) - batch.lengths
        first_kept = subsample.first_kept(life_keys(places_of(batch.records))[starts])
        rank = np.arange(len(batch.records)) - np.repeat(starts, batch.lengths)
        kept = subsample.keep(rank, np.repeat(first_kept, batch.lengths))  # which records are compared, (B,) bool
        life.append(before + np.repeat(np.arange(len(batch)), batch.lengths)[kept])
        before += len(batch)
        hidden[0].append(batch.records.activations[layer][kept])
        code[0].append(batch.records.activations[SEMANTIC_CODE][kept].argmax(axis=1))
        first, info = next(iter(networks.values()))  # all see the same
        observation = packed_observation(batch.records, info.layout, first.mask)
        lengths = torch.from_numpy(batch.lengths)
        for number, (policy, _) in enumerate(networks.values(), start=1):
            assert policy.semantic
            seen = policy.forward_segments(observation, lengths, policy.initial_state(len(batch))).hidden[kept]
            hidden[number].append(seen.numpy())
            code[number].append(policy.semantic.nearest(policy.semantic.plane(seen)).numpy())
    codes = [(metadata.policy, metadata.layers[SEMANTIC_CODE])]
    codes += [(name, info.semantic.codes) for name, (_, info) in networks.items() if info.semantic]
    seen_by_network = [
        Seen(name, count, np.concatenate(states), np.concatenate(numbers))
        for (name, count), states, numbers in zip(codes, hidden, code, strict=True)
    ]
    index = np.unique(np.concatenate(life), return_inverse=True)[1]
    states = np.bincount(index)
    return seen_by_network, Lives(index, np.arange(len(index)), np.cumsum(states) - states, states)


CODES, FITTED, K_MEANS = "codes", "codes fitted to states", "k-means on states"
TRAINED, UNTRAINED, GAUSSIAN = "trained", "untrained", "Gaussian"
HEADS = ("way", "networks", "pair", "groups in use", "ARI (95% interval)", "NMI (95% interval)")


@dataclass(frozen=True)
class Pair:
    """How much two networks agree."""

    way: str
    """Of dividing states: by the codes of the networks themselves (`CODES`), or by groups fitted to the hidden states
    of each (`FITTED`, `K_MEANS`)."""
    networks: str
    """`TRAINED`, `UNTRAINED`, or `GAUSSIAN`: states drawn at random that have the covariance and the autocorrelation of
    those of trained networks, within each network and between them."""
    first: str
    second: str
    in_use: tuple[float, float]  # groups in use by each, as the perplexity of their shares
    adjusted_rand: Estimate  # adjusted Rand index: 0 by chance, 1 for the same groups
    normalised_information: Estimate  # mutual information over the mean entropy; more than 0 by chance


def agreement_table(pairs: Sequence[Pair]) -> str:
    """Return everything as tab-separated text, one line for each pair and measure."""
    rows = [
        (pair.way, pair.networks, pair.first, pair.second, name, *estimate_cells(getattr(pair, name)))
        for pair in pairs for name in ("adjusted_rand", "normalised_information")
    ]  # fmt: skip
    return tab_separated_lines(("way", "networks", "first", "second", "measure", "value", "low", "high"), rows)


def agreement_rows(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Return the cells of `HEADS` for each pair."""
    return [
        (pair.way, pair.networks, f"{pair.first}, {pair.second}",
         " and ".join(f"{number:.1f}" for number in pair.in_use), _in_words(pair.adjusted_rand),
         _in_words(pair.normalised_information))
        for pair in pairs
    ]  # fmt: skip


def agreement_of(
    dump: Path, metadata: DumpMetadata, networks: Networks, most: int, resamples: int, seed: int, step: Step
) -> tuple[list[Pair], Lives]:
    """Compare the codes of a dump's policy and of other trainings, and controls, on the same states.

    Args:
        most: states, of whole lives drawn at random.

    Returns:
        Pairs of networks, and the lives of the states: one record in `EVERY` of each.

    Raises:
        UserError: the dump holds too few states.
    """
    drawn, subsample = draw_lives(dump, most, seed)
    like = next(iter(networks.values()))[1]
    fresh: Networks = {f"untrained (seed {one})": (build_untrained(like, one), like) for one in (seed, seed + 1)}
    with step(f"replaying {len(drawn):,} lives") as report:
        seen, lives = replay(dump, metadata, drawn, subsample, networks | fresh, report)
    resampled = LifeResamples(lives.index, resamples, seed)
    trained, fresh_ones = seen[: 1 + len(networks)], seen[1 + len(networks) :]
    groups = {TRAINED: trained, GAUSSIAN: _gaussians(trained, lives, seed), UNTRAINED: fresh_ones}
    pairs = []
    with step("fitting and comparing codes"):
        for kind, group in groups.items():
            ways = {  # each network's labels of the states, (N,) int64, by way of dividing them
                CODES: [network.code for network in group],
                FITTED: [codebook(network.codes)(network.hidden, lives, seed)(network.hidden) for network in group],
                K_MEANS: [k_means(network.hidden, network.codes, seed)(network.hidden) for network in group],
            }
            if kind == GAUSSIAN:
                del ways[CODES]
            for way, divided in ways.items():
                for (one, label), (other, label_of_other) in combinations(zip(group, divided, strict=True), 2):
                    in_use = perplexity(label, np.ones(len(label))), perplexity(label_of_other, np.ones(len(label)))
                    estimates = (
                        resampled.estimate(partial(measure, label, label_of_other))
                        for measure in (weighted_adjusted_rand, normalised_information)
                    )
                    pairs.append(Pair(way, kind, one.name, other.name, in_use, *estimates))
    return pairs, lives


def _in_words(estimate: Estimate) -> str:
    if not np.isfinite(estimate.value):
        return "none"
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _gaussians(group: Sequence[Seen], lives: Lives, seed: int) -> list[Seen]:
    """Replace the states of all networks by one Gaussian surrogate of them side by side."""
    side_by_side = np.concatenate([seen.hidden for seen in group], axis=1)  # (N, units of all)
    drawn = gaussian_surrogate(side_by_side, lives, np.random.default_rng([seed, 7]))
    ends = np.cumsum([seen.hidden.shape[1] for seen in group])
    parts = np.split(drawn, ends[:-1], axis=1)
    return [replace(seen, hidden=part) for seen, part in zip(group, parts, strict=True)]
