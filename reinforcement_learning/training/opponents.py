"""Opponents from earlier checkpoints of the same run, who take some seats of every world, and their Elo ratings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson
import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent_zoo.checkpoint import load_checkpoint
from agent_zoo.checkpoint_files import list_checkpoints
from common.files import append_bytes, read_lines, write_bytes
from common.user_error import UserError
from reinforcement_learning.game.life import Life
from reinforcement_learning.play.stepper import LEARNER, Stepper

TABLE_FILE = "elo.tsv"
HISTORY_FILE = "elo.jsonl"
START = 1000.0
_STEP = 32.0
_TEN_TO_ONE = 400.0


@dataclass
class Ratings:
    """Ratings that follow the usual rule: 32 times the difference between outcome and expectation.

    In the run's folder, `elo.jsonl` has a line of them for each update, and `elo.tsv` is the last one as a table.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    learner: float = START  # its rating, which checkpoints start with
    others: dict[str, float] = field(default_factory=dict)  # name of a checkpoint -> rating
    games: dict[str, int] = field(default_factory=dict)  # name of a checkpoint -> updates in which it met the learner

    def __post_init__(self) -> None:
        if self.others.keys() != self.games.keys():
            raise ValueError("ratings and games are of different policies")

    @staticmethod
    def after(folder: Path, updates: int) -> "Ratings":
        """Return the ratings after some updates, dropping later ones (UserError: the last line to keep is damaged)."""
        path = folder / HISTORY_FILE
        lines = read_lines(path)[:updates] if updates else []
        try:
            last = TypeAdapter(Ratings).validate_json(lines[-1], strict=True) if lines else Ratings()
        except ValidationError:
            raise UserError(f"{path} is damaged in line {len(lines)}: remove it, and all ratings begin anew") from None
        write_bytes(path, b"".join(lines))
        return last

    def know(self, names: Iterable[str]) -> None:
        """Rate checkpoints that have not played as the learner is now."""
        for name in names:
            self.others.setdefault(name, self.learner)
            self.games.setdefault(name, 0)

    def learn(self, leads: Mapping[str, float]) -> None:
        """Change ratings by how much better the learner did than each checkpoint in one update; 0 is a draw."""
        before = self.learner
        for name, lead in leads.items():
            expected = 1 / (1 + 10 ** ((self.others[name] - before) / _TEN_TO_ONE))
            change = _STEP * ((lead > 0) + 0.5 * (lead == 0) - expected)
            self.learner += change
            self.others[name] -= change
            self.games[name] += 1

    def save(self, folder: Path, name: str) -> None:
        """Append the ratings of an update, and write the table, best first."""
        append_bytes(folder / HISTORY_FILE, orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE), sync=True)
        rows = [(name, self.learner, sum(self.games.values()))]
        rows += [(other, rating, self.games[other]) for other, rating in self.others.items()]
        best = sorted(rows, key=lambda row: -row[1])
        lines = ["policy_name\trating\tgames", *(f"{who}\t{rating:.1f}\t{games}" for who, rating, games in best)]
        write_bytes(folder / TABLE_FILE, "\n".join([*lines, ""]).encode())


_CHECKPOINT = re.compile(r".*_(\d{10})")


@dataclass
class Opponents:
    """Chooses the opponents of a run, and rates them."""

    steppers: Sequence[Stepper]  # of all groups of worlds
    kernel: Sequence[int]  # as in `Stepper`
    folder: Path  # of the run's checkpoints
    seed: int  # of the run; with the number of checkpoints, it decides who is chosen
    ratings: Ratings  # of the learner and of all checkpoints that played
    names: dict[int, str] = field(default_factory=dict)  # number -> name of the checkpoint that plays those seats

    def choose(self, steps: int) -> None:
        """Draw opponents among the checkpoints after at most `steps` agent-steps; the newest one always plays."""
        there = [
            path for path in list_checkpoints(self.folder)
            if (match := _CHECKPOINT.fullmatch(path.stem)) and int(match[1]) <= steps
        ]  # fmt: skip
        numbers = sorted(set(self.kernel) - {LEARNER})
        random = np.random.default_rng([self.seed, len(there)])
        earlier = random.permutation(len(there) - 1)[: len(numbers) - 1].tolist()
        drawn = [there[-1], *(there[place] for place in earlier)]
        chosen = {number: drawn[place % len(drawn)] for place, number in enumerate(numbers)}
        policies = {number: load_checkpoint(path)[0] for number, path in chosen.items()}
        self.names = {number: path.stem for number, path in chosen.items()}
        self.ratings.know(self.names.values())
        for stepper in self.steppers:
            stepper.kernel = self.kernel
            stepper.take_lives()
            stepper.opponents = {number: policy.to(stepper.device) for number, policy in policies.items()}

    def change(self, steps: int) -> None:
        """As `choose`, after a checkpoint was added: new opponents start with empty memories."""
        self.choose(steps)
        for stepper in self.steppers:
            others = np.flatnonzero(stepper.seats != LEARNER)
            stepper.memory.clear(torch.from_numpy(others).to(stepper.device))

    def rate(self, own: Sequence[Life]) -> dict[str, float]:
        """Compare the lives that ended in an update, and return the metrics."""
        theirs: dict[str, list[Life]] = {}
        for stepper in self.steppers:
            for number, lives in stepper.take_lives().items():
                theirs.setdefault(self.names[number], []).extend(lives)
        if own:
            mean = _mean_reward(own)
            self.ratings.learn({name: mean - _mean_reward(lives) for name, lives in sorted(theirs.items())})
        ended = [life for lives in theirs.values() for life in lives]
        metrics = {"opponents/rating": self.ratings.learner, "opponents/lives": float(len(ended))}
        return metrics | ({"opponents/total_reward": _mean_reward(ended)} if ended else {})


def _mean_reward(lives: Sequence[Life]) -> float:
    return float(np.mean([life.total_reward for life in lives]))
