"""Whether networks divide the same ticks in the same way: by their own codes, and by groups fitted to their states."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from activation_store.schema import DumpMetadata
from analysis.codes.content import Step
from analysis.codes.measures import LifeResamples, normalised_information, perplexity, weighted_adjusted_rand
from analysis.codes.partitions import codebook, k_means
from analysis.codes.replayed import EVERY, Network, Seen, draw_lives, replay, untrained
from analysis.lives import Lives
from analysis.statistics.resampling import Estimate
from analysis.statistics.surrogate import gaussian_surrogate
from analysis.tables import tab_separated_lines

CODES, FITTED, K_MEANS = "codes", "codes fitted to states", "k-means on states"
TRAINED, UNTRAINED, GAUSSIAN = "trained", "untrained", "Gaussian"
HEADS = ("way", "networks", "pair", "groups in use", "ARI (95% interval)", "NMI (95% interval)")
_DECIMALS = 4


@dataclass(frozen=True)
class Pair:
    """How much two networks agree.

    Attributes:
        way: of dividing states: by the codes of the networks themselves (`CODES`), or by groups fitted to the hidden
            states of each (`FITTED`, `K_MEANS`).
        networks: `TRAINED`, `UNTRAINED`, or `GAUSSIAN`: states drawn at random that have the covariance and the
            autocorrelation of those of trained networks, within each network and between them.
        in_use: groups in use by each, as the perplexity of their shares.
        adjusted_rand: adjusted Rand index: 0 by chance, 1 for the same groups.
        normalised_information: mutual information over the mean entropy; more than 0 by chance.
    """

    way: str
    networks: str
    first: str
    second: str
    in_use: tuple[float, float]
    adjusted_rand: Estimate
    normalised_information: Estimate


@dataclass(frozen=True)
class Agreement:
    """Pairs of networks on the same states.

    Attributes:
        pairs: of trainings, then of Gaussians like them, then of untrained networks.
        states: number of states.
        one_in: one record in so many of each life is a state.
    """

    pairs: tuple[Pair, ...]
    states: int
    lives: int
    one_in: int

    def table(self) -> str:
        """Return everything as tab-separated text, one line for each pair and measure."""
        rows = []
        for pair in self.pairs:
            for name in ("adjusted_rand", "normalised_information"):
                estimate = astuple(getattr(pair, name))
                numbers = ["" if np.isnan(number) else f"{number:.{_DECIMALS}f}" for number in estimate]
                rows.append((pair.way, pair.networks, pair.first, pair.second, name, *numbers))
        return tab_separated_lines(("way", "networks", "first", "second", "measure", "value", "low", "high"), rows)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of `HEADS` for each pair."""
        return [
            (pair.way, pair.networks, f"{pair.first}, {pair.second}",
             " and ".join(f"{number:.1f}" for number in pair.in_use), _in_words(pair.adjusted_rand),
             _in_words(pair.normalised_information))
            for pair in self.pairs
        ]  # fmt: skip


def agreement_of(
    dump: Path, metadata: DumpMetadata, networks: Sequence[Network], most: int, resamples: int, seed: int, step: Step
) -> Agreement:
    """Compare the codes of a dump's policy and of other trainings, and controls, on the same states.

    Args:
        networks: other trainings.
        most: states, of whole lives drawn at random.
        resamples: of lives, for the intervals.
        seed: of lives, fits and untrained networks.
        step: shows progress.

    Raises:
        UserError: the dump holds too few states.
    """
    drawn = draw_lives(dump, most, seed)
    fresh = [untrained(networks[0].info, seed + number) for number in (0, 1)]
    with step(f"replaying {len(drawn.lives):,} lives") as report:
        seen, lives = replay(dump, metadata, drawn, [*networks, *fresh], report)
    resampled = LifeResamples(lives.index, resamples, seed)
    trained, fresh_ones = seen[: 1 + len(networks)], seen[1 + len(networks) :]
    groups = {TRAINED: trained, GAUSSIAN: _gaussians(trained, lives, seed), UNTRAINED: fresh_ones}
    pairs = []
    with step("fitting and comparing codes"):
        for kind, group in groups.items():
            labels = _divided(group, lives, seed)
            if kind == GAUSSIAN:
                del labels[CODES]
            for way, divided in labels.items():
                for one, other in combinations(range(len(group)), 2):
                    names = group[one].name, group[other].name
                    pairs.append(_pair(way, kind, names, divided[one], divided[other], resampled))
    return Agreement(tuple(pairs), drawn.states, len(lives), EVERY)


def _in_words(estimate: Estimate) -> str:
    return (
        f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})" if np.isfinite(estimate.value) else "none"
    )


def _gaussians(group: Sequence[Seen], lives: Lives, seed: int) -> list[Seen]:
    """Replace the states of all networks by one Gaussian surrogate of them side by side."""
    side_by_side = np.concatenate([seen.hidden for seen in group], axis=1)  # (N, units of all)
    drawn = gaussian_surrogate(side_by_side, lives, np.random.default_rng([seed, 7]))
    ends = np.cumsum([seen.hidden.shape[1] for seen in group])
    parts = np.split(drawn, ends[:-1], axis=1)
    return [replace(seen, hidden=part) for seen, part in zip(group, parts, strict=True)]


def _divided(group: Sequence[Seen], lives: Lives, seed: int) -> dict[str, list[np.ndarray]]:
    """Return each network's labels of the states, (N,) int64, by way of dividing them."""
    return {
        CODES: [network.code for network in group],
        FITTED: [codebook(network.codes)(network.hidden, lives, seed)(network.hidden) for network in group],
        K_MEANS: [k_means(network.hidden, network.codes, seed)(network.hidden) for network in group],
    }


def _pair(
    way: str, networks: str, names: tuple[str, str], label: np.ndarray, other: np.ndarray, resampled: LifeResamples
) -> Pair:
    every = np.ones(len(label))
    return Pair(
        way, networks, *names, (perplexity(label, every), perplexity(other, every)),
        resampled.estimate(partial(weighted_adjusted_rand, label, other)),
        resampled.estimate(partial(normalised_information, label, other)),
    )  # fmt: skip
