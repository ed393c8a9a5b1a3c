"""Learning the subspace of a memory in which a variable acts: distributed alignment search.

A rotation of a state is learnt such that, once a few rotated coordinates of a base take the values of a source, the
policy acts as agents with the source's value of a variable do (Geiger et al. 2024, "Finding alignments between
interpretable causal variables and distributed neural representations"). A logistic
regression, fitted to the logits of unedited ticks and then kept, says which value the actions belong to. Everything
that a base reads stays as recorded, so nothing passes through the game. A run of `intervene.py --edit interchange
--learn` learns it on some lives, and tries it on others.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import torch
from rich.console import Console
from torch.nn import functional

from activation_store.directions import DIRECTIONS_FILE, Direction, Source, direction_from, write_directions
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, STATES, memory_names
from activation_store.reader import read_metadata
from activation_store.schema import DumpMetadata
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import memory_from_layers
from agent_zoo.checkpoint import build_untrained
from agent_zoo.memory import MemoryState
from analysis.dynamics.alignment_options import GOAL, LearnOptions
from analysis.dynamics.tracks import Tracks, Update, load_policy_of, read_tracks
from analysis.features import feature_matrix, features_named
from analysis.features.registry import CATEGORIES
from analysis.interventions.edits.linear_readings import leading_components
from analysis.recorded.recorded_observation import SHOWN
from analysis.runs.run_folder import RunFolder, description
from analysis.statistics.resampling import means_over_lives
from analysis.tables import tab_separated
from common.progress_view import Step, step
from common.user_error import UserError

AHEAD = 4
"""Ticks after the exchange whose actions count too."""
STARTS = 3
"""Rotations that learning starts from; the one with the smallest loss is taken."""
STEPS = 250
_PAIRS_AT_ONCE = 256
_RATE = 0.02
RANDOM_SUBSPACES = 20
_TRAINED_ON = 2 / 3
_MOST_RECORDS, _MOST_PAIRS = 20_000, 2000
_FEWEST_LIVES = 8
"""Lives with each value, on either side of the division."""
_ENDS = (2.5, 97.5)

Exchange = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Gives states of bases, (N, units), something of those of their sources."""


@dataclass(frozen=True, eq=False)
class Situations:
    """N recorded ticks of a policy."""

    before: MemoryState  # memory before the tick
    read: torch.Tensor  # by the memory in the tick and in the `AHEAD` ticks after it, (1 + AHEAD, N, units)
    states: torch.Tensor  # of the layer under study after the tick, (N, units) float32
    label: np.ndarray  # number of the variable's value, (N,) int64
    life: np.ndarray  # (N,) int64
    tick: np.ndarray  # of the episode, (N,) int64

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: np.ndarray) -> "Situations":
        """Return some of them."""
        place = torch.from_numpy(rows)
        return Situations(
            self.before.take(place), self.read[:, place], self.states[place], self.label[rows], self.life[rows],
            self.tick[rows],
        )  # fmt: skip


def decisions(
    policy: RecurrentPolicy, layer: str, bases: Situations, edit: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Return logits of the small heads, less their means, over the tick and those after it, (N, options).

    Args:
        edit: of the layer's states, in the first of these ticks.
    """
    with policy.hooked({layer: edit} if edit else {}):
        hidden, memory = policy.remember(bases.read[0], bases.before)
    total = _logits(policy, hidden)
    for read in bases.read[1:]:
        hidden, memory = policy.remember(read, memory)
        total = total + _logits(policy, hidden)
    return total / len(bases.read)


def _logits(policy: RecurrentPolicy, hidden: torch.Tensor) -> torch.Tensor:
    decoder, read = policy.policy.action_decoder, policy.read(hidden)
    heads = [head for head in decoder.layout.heads if head.candidates is None and head.name in SHOWN]
    scores = [decoder.own_scores(head, read) for head in heads]
    return torch.cat([score - score.mean(dim=1, keepdim=True) for score in scores], dim=1)


Reader = Callable[[torch.Tensor], torch.Tensor]
"""Gives the score of each of the variable's values, (N, values), from logits, (N, options)."""


def fitted_reader(logits: torch.Tensor, label: np.ndarray) -> Reader:
    """Fit a logistic regression that tells the variable's value from the logits of unedited ticks."""
    from sklearn.linear_model import LogisticRegression

    values = logits.numpy().astype(np.float64)
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    model = LogisticRegression(max_iter=1000).fit((values - mean) / spread, label)
    weight, bias = model.coef_ / spread, model.intercept_
    if len(weight) == 1:  # of two values only the second has weights
        weight, bias = np.concatenate([np.zeros_like(weight), weight]), np.array([0.0, *bias])
    weights, biases = torch.from_numpy(weight.T).float(), torch.from_numpy(bias - weight @ mean).float()
    return lambda shown: shown @ weights + biases


def right(reader: Reader, logits: torch.Tensor, label: np.ndarray) -> np.ndarray:
    """Say where the actions tell this value, (N,) bool."""
    return (reader(logits).argmax(dim=1) == torch.from_numpy(label)).numpy()


class Sources:
    """Draws the source of a base: in another life in the same tick, with the same value as often as with another."""

    def __init__(self, situations: Situations):
        ticks, values = situations.tick.tolist(), situations.label.tolist()
        self._places: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(ticks, values, strict=True)):
            self._places.setdefault(key, []).append(place)
        self._keys = list(zip(ticks, values, strict=True))
        self._values = sorted(set(values))

    def pairs(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw at most so many pairs: bases and sources, (n,) each; those without a possible source are left out."""
        bases, sources = [], []
        for base in random.integers(len(self._keys), size=count).tolist():
            tick, value = self._keys[base]
            wanted = value
            if random.random() < 0.5:
                wanted = int(random.choice([other for other in self._values if other != value]))
            there = self._places.get((tick, wanted), [])
            if len(there) > (wanted == value):
                source = base
                while source == base:
                    source = there[int(random.integers(len(there)))]
                bases.append(base)
                sources.append(source)
        return np.array(bases, np.int64), np.array(sources, np.int64)


def along(subspace: torch.Tensor) -> Exchange:
    """Exchange the coordinates in a subspace, (dimensions, units) orthonormal."""
    return lambda bases, sources: bases + (sources - bases) @ subspace.T @ subspace


def learnt_subspace(
    policy: RecurrentPolicy, layer: str, situations: Situations, reader: Reader, dimensions: int, seed: int,
    progress: Callable[[float], None] = lambda share: None,
) -> np.ndarray:  # fmt: skip
    """Learn the subspace whose exchange makes the policy act as with the source's value, (dimensions, units).

    Its rows are orthonormal, and lie in the span of the principal components that hold nearly all variance of the
    states: an exchange along what never varies may act through paths that are never active (Makelov, Lange and Nanda
    2024, "Is this the subspace you are looking for?").
    """
    basis = torch.from_numpy(varying(situations.states.numpy()))
    random, sources = np.random.default_rng([seed, 1]), Sources(situations)
    best, smallest = np.empty(0), np.inf
    for start in range(STARTS):
        draw = random.standard_normal((len(basis), dimensions))
        raw = torch.from_numpy(draw).float().requires_grad_()
        optimizer = torch.optim.Adam([raw], _RATE)
        losses = []
        for number in range(STEPS):
            pairs = sources.pairs(_PAIRS_AT_ONCE, random)
            with torch.enable_grad():
                exchange = along(torch.linalg.qr(raw).Q.T @ basis)  # the columns' span, orthonormal
                logits = _exchanged(policy, layer, situations, exchange, pairs)
                loss = functional.cross_entropy(reader(logits), torch.from_numpy(situations.label[pairs[1]]))
                (raw.grad,) = torch.autograd.grad(loss, [raw])
            optimizer.step()
            losses.append(float(loss.detach()))
            progress((start + (number + 1) / STEPS) / STARTS)
        if (last := float(np.mean(losses[-STEPS // 5 :]))) < smallest:
            best, smallest = (torch.linalg.qr(raw.detach()).Q.T @ basis).numpy(), last
    return best


def varying(states: np.ndarray) -> np.ndarray:
    """Return the leading principal components of states, (N, units), as `leading_components`, (K, units) float32."""
    covariance = np.cov(states.astype(np.float64), rowvar=False)
    return np.ascontiguousarray(leading_components(covariance).astype(np.float32))


@torch.no_grad()
def follows(
    policy: RecurrentPolicy, layer: str, situations: Situations, reader: Reader, exchange: Exchange,
    pairs: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Say after which exchanges the actions tell the source's value, (pairs,) bool: interchange accuracy, by pair."""
    logits = _exchanged(policy, layer, situations, exchange, pairs)
    return right(reader, logits, situations.label[pairs[1]])


def _exchanged(
    policy: RecurrentPolicy, layer: str, situations: Situations, exchange: Exchange,
    pairs: tuple[np.ndarray, np.ndarray],
) -> torch.Tensor:  # fmt: skip
    """Logits of the bases of pairs once they have something of their sources, (pairs, options)."""
    bases, sources = pairs
    donors = situations.states[torch.from_numpy(sources)]
    return decisions(policy, layer, situations.take(bases), lambda own: exchange(own, donors))


@dataclass(frozen=True)
class Accuracy:
    """After how many exchanges the actions tell the source's value."""

    what: str
    accuracy: float  # share of pairs; half of them have the same value. Of random subspaces, the mean.
    low: float  # low, high: 95% interval over resampled lives; of random subspaces, the lowest and the highest
    high: float
    pairs: int
    lives: int


@dataclass(frozen=True, eq=False)
class Side:
    """Lives of one network, divided in two."""

    policy: RecurrentPolicy
    train: Situations
    test: Situations
    reader: Reader  # of the value, fitted to the unedited actions of the lives to learn from
    unedited: float  # share of unedited ticks of the other lives of which it tells the value

    def accuracy(self, what: str, layer: str, exchange: Exchange, seed: int) -> Accuracy:
        """Try an exchange on the other lives; the same pairs for the same seed."""
        pairs = Sources(self.test).pairs(_MOST_PAIRS, np.random.default_rng([seed, 2]))
        told = follows(self.policy, layer, self.test, self.reader, exchange, pairs).astype(np.float64)
        life = self.test.life[pairs[0]]
        low, high = np.percentile(means_over_lives(told[:, None], life), _ENDS)
        return Accuracy(what, float(told.mean()), float(low), float(high), len(told), len(np.unique(life)))


def learn(options: LearnOptions) -> None:
    """Learn a subspace, try it beside controls, and write directions that edits can use.

    Raises:
        UserError: the dump or the policy do not fit, or too few lives have different values.
    """
    options.check()
    metadata = read_metadata(options.learn)
    policy, info = load_policy_of(metadata, options.learn, options.policy, options.policies_dir)
    policy.requires_grad_(False)
    update = Update(policy)
    update.place(options.layer)  # refuses a layer that is no state
    show: Step = partial(step, Console())
    with RunFolder(options.folder, description(options, options.learn, metadata)) as folder:
        with show(f"reading {options.lives} lives") as progress:
            tracks = read_tracks(
                options.learn, metadata, update, options.layer, options.lives, options.seed, progress
            )  # fmt: skip
        label, names = _labels(options, tracks, metadata)
        with show("reading the value in the actions"), torch.no_grad():
            trained = _side(options, policy, tracks, memory_from_layers(policy, tracks.records.activations), label)
        with show("learning the subspace") as progress:
            subspace = _learn(options, trained, progress)
        with show(f"trying it, and {RANDOM_SUBSPACES} random ones"):
            tried = list(_tried(options, trained, subspace))
        with show("the same with an untrained memory") as progress:
            twin = build_untrained(info, options.seed).requires_grad_(False)
            with torch.no_grad():
                untrained = _side(options, twin, tracks, _played(twin, tracks), label)
            theirs = along(torch.from_numpy(_learn(options, untrained, progress)))
            tried.append(untrained.accuracy("learnt in an untrained memory", options.layer, theirs, options.seed))
        write_directions(folder.path / DIRECTIONS_FILE, list(_directions(options, metadata, trained, subspace, tracks)))
        folder.save_text("accuracies.tsv", tab_separated([asdict(row) for row in tried]))
        lines = list(_lines(options, names, trained, untrained, tried))
        folder.save_text("summary.txt", "\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"directions, to be played: {folder.path / DIRECTIONS_FILE}")


def _learn(options: LearnOptions, side: Side, progress: Callable[[float], None]) -> np.ndarray:
    if options.dimensions > (most := len(varying(side.train.states.numpy()))):
        raise UserError(f"--dimensions is {options.dimensions}: states of {options.layer} vary in {most} only")
    return learnt_subspace(
        side.policy, options.layer, side.train, side.reader, options.dimensions, options.seed, progress
    )


def _labels(options: LearnOptions, tracks: Tracks, metadata: DumpMetadata) -> tuple[np.ndarray, list[str]]:
    """Return the number of the value of each record, -1 for none, (B,), and the names of the values.

    Values that hardly any life has are left out.

    Raises:
        UserError: fewer than two values are common.
    """
    if options.donor == GOAL:
        sides = CATEGORIES["goal"].features[:-1]
        has, names = feature_matrix(tracks.records, metadata, sides), [s.name.removeprefix("goal_") for s in sides]
        label = np.where(has.any(axis=1), has.argmax(axis=1), -1)
    else:
        values, names = feature_matrix(tracks.records, metadata, features_named([options.donor]))[:, 0], ["low", "high"]
        label = (values > np.median(values)).astype(np.int64)
    lives = [len(np.unique(tracks.lives.index[label == number])) for number in range(len(names))]
    kept = [number for number, count in enumerate(lives) if count >= 3 * _FEWEST_LIVES]
    if len(kept) < 2:
        raise UserError(
            f"--donor {options.donor}: in {options.learn}, fewer than two values are those of {3 * _FEWEST_LIVES} "
            "lives, so there is nothing to exchange"
        )
    place = np.full(len(names) + 1, -1)  # the last for those without a value
    place[kept] = np.arange(len(kept))
    return place[label], [names[number] for number in kept]


@torch.no_grad()
def _played(policy: RecurrentPolicy, tracks: Tracks) -> MemoryState:
    """Return the memory after each record of a policy that reads the recorded outputs of the encoder from birth."""
    states = policy.initial_state(len(tracks))
    lives = tracks.lives
    for tick in range(int(lives.lengths.max())):
        now = lives.order[lives.starts[lives.lengths > tick] + tick]
        before = states.take(torch.from_numpy(tracks.ahead(now, -1))) if tick else policy.initial_state(len(now))
        _, after = policy.remember(torch.from_numpy(tracks.read[now]).float(), before)
        states.put(torch.from_numpy(now), after)
    return states


def _side(
    options: LearnOptions, policy: RecurrentPolicy, tracks: Tracks, memory: MemoryState, label: np.ndarray
) -> Side:
    """Divide the lives of a network in two, by chance, and fit the reader.

    Raises:
        UserError: too few ticks or lives are left.
    """
    records = tracks.with_ticks_around(1, AHEAD)
    records = records[(tracks.records.tick[records] >= options.from_tick) & (label[records] >= 0)]
    random = np.random.default_rng([options.seed, 3])
    chosen = random.random(len(tracks.lives)) < _TRAINED_ON
    if len(records) > _MOST_RECORDS:
        records = np.sort(random.choice(records, _MOST_RECORDS, replace=False))
    sides = []
    for wanted in (True, False):
        own = records[chosen[tracks.lives.index[records]] == wanted]
        for number in range(label.max() + 1):
            lives = len(np.unique(tracks.lives.index[own[label[own] == number]]))
            if lives < _FEWEST_LIVES:
                raise UserError(
                    f"--from-tick {options.from_tick}: only {lives} lives with one of the values of {options.donor} "
                    f"are left to {'learn from' if wanted else 'try it on'}, and {_FEWEST_LIVES} are needed; extract "
                    "more or longer episodes"
                )
        sides.append(_situations(options.layer, policy, tracks, memory, label, own))
    train, test = sides
    reader = fitted_reader(decisions(policy, options.layer, train), train.label)
    unedited = right(reader, decisions(policy, options.layer, test), test.label)
    return Side(policy, train, test, reader, float(unedited.mean()))


def _situations(
    layer: str, policy: RecurrentPolicy, tracks: Tracks, memory: MemoryState, label: np.ndarray, records: np.ndarray
) -> Situations:
    kind = next(kind for kind in (LSTM_CELL, LSTM_HIDDEN) if layer.startswith(kind))
    assert kind in STATES[policy.cell]
    number = memory_names(kind, policy.layers).index(layer)
    states = (memory.cell if kind == LSTM_CELL else memory.hidden)[number]
    read = np.stack([tracks.read[tracks.ahead(records, ahead)] for ahead in range(1 + AHEAD)])
    return Situations(
        memory.take(torch.from_numpy(tracks.ahead(records, -1))), torch.from_numpy(read).float(),
        states[torch.from_numpy(records)], label[records], tracks.lives.index[records], tracks.records.tick[records],
    )  # fmt: skip


def _tried(options: LearnOptions, side: Side, subspace: np.ndarray) -> Iterator[Accuracy]:
    """Yield the accuracy of the learnt subspace on the other lives, and those of its controls."""
    accuracy = partial(side.accuracy, layer=options.layer, seed=options.seed)
    yield accuracy("learnt subspace", exchange=along(torch.from_numpy(subspace)))
    means = np.stack([
        side.train.states[torch.from_numpy(side.train.label == number)].numpy().mean(axis=0)
        for number in range(side.train.label.max() + 1)
    ])  # fmt: skip
    apart = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2][: min(options.dimensions, len(means) - 1)]
    yield accuracy("between the means of the values", exchange=along(torch.from_numpy(apart.astype(np.float32))))
    basis, random = varying(side.train.states.numpy()), np.random.default_rng([options.seed, 4])
    others = []
    for _ in range(RANDOM_SUBSPACES):
        turned = np.linalg.qr(random.standard_normal((len(basis), options.dimensions)))[0].T @ basis
        others.append(accuracy("random", exchange=along(torch.from_numpy(turned.astype(np.float32)))))
    values = [other.accuracy for other in others]
    yield Accuracy(
        f"{RANDOM_SUBSPACES} random subspaces", float(np.mean(values)), min(values), max(values), others[0].pairs,
        others[0].lives,
    )  # fmt: skip
    yield accuracy("whole state", exchange=lambda own, theirs: theirs)
    yield accuracy("nothing", exchange=lambda own, theirs: own)


def _directions(
    options: LearnOptions, metadata: DumpMetadata, side: Side, subspace: np.ndarray, tracks: Tracks
) -> Iterator[Direction]:
    """Yield `learnt_N`, from 1; the read-out of the first is higher for the last of the values."""
    states = side.train.states.numpy().astype(np.float64)
    (own,) = np.isin(tracks.lives.index, side.train.life).nonzero()
    episodes = len(np.unique(tracks.records.episode[own]))
    source = Source(
        "learnt subspace", options.folder.name, options.learn.resolve().name, metadata.policy,
        metadata.checkpoint_sha256,
    )  # fmt: skip
    for number, weight in enumerate(subspace, start=1):
        higher = np.cov(states @ weight, side.train.label)[0, 1] >= 0
        yield direction_from(
            f"learnt_{number}", options.layer, weight if higher else -weight, states.mean(axis=0), "activation",
            side.train.states.numpy(), len(np.unique(side.train.life)), episodes, source,
        )  # fmt: skip


def _lines(
    options: LearnOptions, names: list[str], trained: Side, untrained: Side, tried: list[Accuracy]
) -> Iterator[str]:
    yield (
        f"{options.donor} ({', '.join(names)}) in {options.dimensions} of the dimensions of {options.layer}, learnt "
        f"from {len(np.unique(trained.train.life))} lives, tried on {tried[0].lives} others, from tick "
        f"{options.from_tick} on."
    )
    yield (
        f"The actions of a tick and the {AHEAD} after it tell the value in {trained.unedited:.1%} of unedited ticks; "
        f"those of an untrained memory on the same inputs in {untrained.unedited:.1%}."
    )
    yield "After how many exchanges they tell the source's value, which is the base's own in half of the pairs:"
    for row in tried:
        ends = "lowest and highest" if "random" in row.what else "95% over lives"
        yield f"  {row.what}: {row.accuracy:.3f} ({row.low:.3f} to {row.high:.3f}, {ends})"
    as_high = tried[0].accuracy > tried[2].high
    yield (
        f"The learnt subspace is {'above' if as_high else 'not above'} all random ones (p "
        f"{'= ' if as_high else '> '}{1 / (1 + RANDOM_SUBSPACES):.3f})."
    )
    policy = options.policy.stem if options.policy else read_metadata(options.learn).policy
    names_of = ",".join(f"learnt_{number}" for number in range(1, options.dimensions + 1))
    yield (
        f"To play it: python intervene.py -p {policy} --directions {options.folder / DIRECTIONS_FILE} "
        f"--edit interchange --direction {names_of} --donor {options.donor}"
    )
