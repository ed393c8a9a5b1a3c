"""The states of a layer that autoencoders are fitted to and tested on: whole episodes for each."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from activation_store.lives import places_of
from activation_store.reader import Progress, read_dump, read_identity
from activation_store.records import Records
from activation_store.schema import LIFE_KEY, DumpMetadata
from analysis.lives import Lives, lives_of
from analysis.statistics.surrogate import gaussian_surrogate
from user_error import UserError

FEWEST_EPISODES = 2
"""One to fit to, one to test on."""

_TEST_SHARE = 4
"""One of so many episodes is tested on."""

_NOTHING_ELSE = ("tile", "entity", "inventory", "tables", "reward", "value", "log_probability")


@dataclass(frozen=True)
class Split:
    """The episodes of a dump, ascending.

    Attributes:
        train: to fit to.
        test: that no fit sees.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class States:
    """States of some episodes. B records, U units.

    Attributes:
        values: (B, U) float32.
        places: slot, agent, episode and tick of each record, (B,) int64 each.
        lives: of the records.
    """

    values: np.ndarray
    places: dict[str, np.ndarray]
    lives: Lives

    def __len__(self) -> int:
        return len(self.values)

    @property
    def episodes(self) -> np.ndarray:
        """The episode of each record, (B,) int64."""
        return self.places["episode"]

    def surrogate(self, seed: int) -> "States":
        """Return a Gaussian of the same covariance and autocorrelation in the place of the states."""
        drawn = gaussian_surrogate(self.values, self.lives, np.random.default_rng([seed, 10]))
        return States(drawn, self.places, self.lives)

    def sample(self, most: int, seed: int) -> "States":
        """Return so many states drawn by lot, or all if there are fewer."""
        if len(self) <= most:
            return self
        kept = np.zeros(len(self), bool)
        kept[np.random.default_rng(seed).permutation(len(self))[:most]] = True
        places = {name: each[kept] for name, each in self.places.items()}
        return States(self.values[kept], places, self.lives.of_records(kept))


def split_episodes(folder: Path, metadata: DumpMetadata, seed: int) -> Split:
    """Divide the episodes of a dump: a quarter, drawn by lot and at least one, to test on, the rest to fit to.

    Raises:
        UserError: there are fewer than two.
    """
    if metadata.format == "json":
        episodes = np.unique(read_identity(folder)["episode"])
    else:
        episodes = np.array(sorted(file.episode for file in metadata.files.values() if file.episode is not None))
    if len(episodes) < FEWEST_EPISODES:
        raise UserError(
            f"{folder} holds {len(episodes)} episode: autoencoders are fitted to some and tested on others, so they "
            "need 2, better 8 or more: extract again with --episodes 8"
        )
    held_out = np.random.default_rng(seed).permutation(episodes)[: max(1, round(len(episodes) / _TEST_SHARE))]
    return Split(tuple(each for each in episodes.tolist() if each not in held_out), tuple(sorted(held_out.tolist())))


def read_states(folder: Path, layer: str, episodes: tuple[int, ...], progress: Progress | None = None) -> States:
    """Read the states of one layer in some episodes.

    Raises:
        UserError: the dump cannot be read, or lacks the layer.
    """
    records = read_dump(
        folder, layers=[layer], columns=[], leave_out=_NOTHING_ELSE, episodes=episodes, progress=progress
    )
    return states_of(records, layer)


def states_of(records: Records, layer: str) -> States:
    """Take the states of one layer from records."""
    places = places_of(records)
    return States(records.activations[layer], {name: places[name] for name in (*LIFE_KEY, "tick")}, lives_of(records))


def check_enough(folder: Path, states: int, features: int) -> None:
    """Refuse to fit more features than there are training states.

    Raises:
        UserError: there are.
    """
    if states < features:
        raise UserError(
            f"{folder} holds {states:,} states to fit to, too few for {features:,} features: give a smaller --width, "
            "or extract again with more --episodes"
        )
