"""Validation by control: what an edit does at once as the gradient predicts it, in simulations, and in the game.

All edits are made from the same recorded starts, on maps that the model was not trained on. In each tick, two outputs
of the policy are compared, without and with the edit of this tick, as intervene.py compares them in play.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from agent_zoo.observation import PackedObservation
from representation.recorded_observation import packed_observation
from representation.sparse_autoencoder.scores import Estimate
from representation.world_model.edits import Edits
from representation.world_model.held_out import life_numbers
from representation.world_model.imagination import imagine, informed_start
from representation.world_model.intervened import QUANTITIES, InGame, Intervened, Made
from representation.world_model.made_at_once import exact_play, first_order, made, soft_play, soft_quantities
from representation.world_model.model import Origin, WorldModel
from representation.world_model.options import SETTLING
from representation.world_model.outcomes import over_lives
from representation.world_model.recorded_states import RecordedStates
from representation.world_model.requested_edits import EditSources, requested_edits
from representation.world_model.simulated_records import LIVES_IN_EPISODE
from representation.world_model.windows import CONTEXT, Windows, as_windows, read_sequences
from user_error import UserError

SIDES = ("predicted", "replayed", "simulated")
"""Predicted by the gradient on recorded ticks; the same edit in full on recorded ticks; in full in simulated ticks."""


@dataclass(frozen=True, eq=False)
class ComparedEdit:
    """One edit of one run with one dose.

    Attributes:
        run: name of its folder.
        edits: the same edit in simulations.
        game: what it did in the game.
        changes: side of `SIDES` -> mean change of each quantity over the edited ticks of a start, (starts, quantities);
            NaN where none counts.
        life: number of the recorded life of each start, (starts,) int64.
    """

    run: str
    edits: Edits
    game: InGame
    changes: Mapping[str, np.ndarray]
    life: np.ndarray


def compare_edits(
    model: WorldModel, origin: Origin, recorded: Path, runs: Sequence[Intervened], lives: int, ticks: int, seed: int,
    report: Callable[[float], None] = lambda _: None,
) -> list[ComparedEdit]:  # fmt: skip
    """Make the edits of finished runs on recorded and in simulated ticks.

    Args:
        model: to simulate with.
        origin: of the model.
        recorded: its dump.
        runs: of intervene.py.
        lives: starts; as many as there are if those are fewer.
        ticks: after each start, at most.
        seed: of starts and dice.
        report: called with the share done.

    Raises:
        UserError: a direction or a dictionary does not fit, or no life is long enough.
    """
    states = RecordedStates(recorded, origin)
    wanted = [
        (run, edits, game)
        for run in runs
        for edits in requested_edits(run.options, EditSources(run.directions, run.dictionary, states), model, origin)
        for game in run.found
        if game.dose == _dose(edits)
    ]
    parts: list[list[dict[str, np.ndarray]]] = [[] for _ in wanted]
    life = []
    for number, (windows, observation) in enumerate(_batches(model, origin, recorded, lives, ticks, seed)):
        life.append(life_numbers(windows))
        for place, (_, edits, game) in enumerate(wanted):
            parts[place].append(changes_at_once(model, windows, observation, edits, game.made, ticks, seed + number))
            report((sum(map(len, life)) - len(windows) * (1 - (place + 1) / len(wanted))) / lives)
    if not life:
        raise UserError(f"{recorded} holds no life of more than {CONTEXT} ticks on the maps kept for testing")
    return [
        ComparedEdit(
            run.folder.resolve().name, edits, game,
            {side: np.concatenate([each[side] for each in found]) for side in SIDES}, np.concatenate(life),
        )
        for (run, edits, game), found in zip(wanted, parts, strict=True)
    ]  # fmt: skip


def _dose(edits: Edits) -> float | None:
    doses: list[float] = [each["dose"] for each in edits.described if "dose" in each]
    return doses[0] if doses else None


def _batches(
    model: WorldModel, origin: Origin, recorded: Path, lives: int, ticks: int, seed: int
) -> Iterator[tuple[Windows, PackedObservation]]:
    """Yield starts with the observations of all their records."""
    left = lives
    for sequences in read_sequences(recorded, origin.test, ticks - 1, LIVES_IN_EPISODE, seed):
        if left <= 0:
            return
        windows = as_windows(sequences, model.policy, model.info).part(0, min(left, len(sequences)))
        yield windows, packed_observation(sequences.records, model.layout, model.policy.mask)
        left -= len(windows)


@torch.no_grad()
def changes_at_once(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the mean changes of all `SIDES`, (windows, quantities) each.

    Args:
        model: to simulate with.
        windows: starts, with recorded ticks after them.
        observation: of all their records.
        edits: to make.
        how: in every tick; or once, in each tick of lives that are not edited otherwise.
        ticks: after each start, at most.
        seed: of the dice.
    """
    predicted, replayed = _replayed(model, windows, observation, edits, how, ticks)
    return {
        "predicted": predicted,
        "replayed": replayed,
        "simulated": _simulated(model, windows, edits, how, ticks, seed),
    }


def _replayed(
    model: WorldModel, windows: Windows, observation: PackedObservation, edits: Edits, how: Made, ticks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Make the edits while the policy sees what was recorded: changes by the gradient, and in full."""
    policy, everyone = model.policy, torch.arange(len(windows))
    memory = windows.memory(CONTEXT - 2, everyone)  # a copy: it goes on from tick to tick, and the recorded one stays
    predicted, replayed = (_Means(len(windows), how) for _ in range(2))
    for tick in range(CONTEXT - 1, min(windows.ticks, CONTEXT - 1 + ticks)):
        (there,) = (windows.lengths > tick).nonzero(as_tuple=True)
        before = windows.memory(tick - 1, there) if how == "once" else memory.take(there)
        play = exact_play(policy, observation.take(windows.starts[there] + tick))
        age = 0 if how == "once" else tick - (CONTEXT - 1)
        plain, _ = play(before)
        edited, after = made(policy, play, before, edits, age)
        memory.put(there, after)
        predicted.add(there, first_order(policy, play, before, edits, age), tick - (CONTEXT - 1))
        replayed.add(there, edited - plain, tick - (CONTEXT - 1))
    return predicted.finish(), replayed.finish()


def _simulated(
    model: WorldModel, windows: Windows, edits: Edits, how: Made, ticks: int, seed: int
) -> np.ndarray:  # fmt: skip
    """Make the edits in simulated lives, (windows, quantities)."""
    generator = torch.Generator().manual_seed(seed)
    start = informed_start(model, windows, generator)
    before, alive, means = start.memory, torch.ones(len(start), dtype=torch.bool), _Means(len(windows), how)
    steps = imagine(model, start, ticks, generator, (), edits if how == "in every tick" else None)
    for number, tick in enumerate(steps):
        play, own = soft_play(model.policy, tick.view.observation), soft_quantities(tick.choices)
        edited, plain = (
            (made(model.policy, play, before, edits, 0)[0], own) if how == "once" else (own, play(before)[0])
        )
        change = edited - plain
        (there,) = alive.nonzero(as_tuple=True)
        means.add(there, change[there], number)
        alive &= torch.rand(len(start), generator=generator) >= tick.end
        before = tick.memory
        if not alive.any():
            break
    return means.finish()


class _Means:
    """Means over the ticks of each start."""

    def __init__(self, starts: int, how: Made):
        self._sums = np.zeros((starts, len(QUANTITIES)))
        self._count = np.zeros((starts, 1))
        self._first = 0 if how == "once" else SETTLING

    def add(self, there: torch.Tensor, changes: torch.Tensor, tick: int) -> None:
        """Add the changes of some starts, (some, quantities), so many ticks after the first."""
        if tick >= self._first:
            self._sums[there.numpy()] += changes.double().numpy()
            self._count[there.numpy()] += 1

    def finish(self) -> np.ndarray:
        """Return the means, (starts, quantities)."""
        return np.divide(self._sums, self._count, out=np.full_like(self._sums, np.nan), where=self._count > 0)


def mean_change(edit: ComparedEdit, side: str, quantity: int, seed: int) -> Estimate:
    """Return the mean change of a quantity over starts, with its 95% interval over recorded lives."""
    values = edit.changes[side][:, quantity]
    known = np.isfinite(values)
    if not known.any():
        return Estimate(float("nan"), float("nan"), float("nan"))
    return over_lives(edit.life[known], seed).mean(values[known])
