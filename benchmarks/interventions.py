"""Cost of editing: whole episodes with drawn agents under an edit, compared with playing them plainly.

    python -m benchmarks.interventions policies/start_kit_3M.safetensors
    python -m benchmarks.interventions policies/start_kit_3M.safetensors --output interventions.json

The edits keep their input, or move it by a millionth, so that nearly the same game is played in all ways; everything
else is done as in a run of intervene.py: hooks, the outputs without the edit in every tick, and the outcomes of each
life. Agents that are moved have shadows, whose outputs are computed as well. Times are processor time of one process.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from agent_zoo.checkpoint import versions
from analysis.interventions.edits.memory_edits import KeptMemory
from analysis.interventions.edits.state_edits import StateEdit, Untouched
from analysis.interventions.play.edited_play import play_arm
from analysis.interventions.play.experiment import ArmPlan
from benchmarks.extraction import contest_of
from benchmarks.measure import Output, seconds_of, spread
from common import command_line
from common.user_error import UserError
from reinforcement_learning.play.contest import Group

_WORLDS = 4
_MOVE = 1e-6


class Moved(StateEdit):
    """Moves states so little that agents act as before, but enough that they have shadows."""

    layer, of = "lstm_hidden", "state"

    def apply(self, activations: torch.Tensor) -> torch.Tensor:
        """See `StateEdit.apply`."""
        return activations + _MOVE


@dataclass(frozen=True)
class Arguments(Output):
    """Arguments of benchmarks/interventions.py."""

    checkpoint: tyro.conf.Positional[Path]
    """Policy to play; it needs a memory."""
    repetitions: int = 3
    """Number of groups of four episodes that are played in each way, at least 1."""
    ticks: int = 200
    """Ticks after which episodes are cut off, at least 1."""
    maps_dir: Path = Path("maps")
    """Folder of generated maps."""


def main() -> None:
    """Parse, measure, print."""
    arguments = command_line.parse(Arguments, __doc__)
    if min(arguments.repetitions, arguments.ticks) < 1:
        raise UserError("--repetitions and --ticks must be at least 1")
    torch.set_num_threads(1)
    times = measure(arguments)
    show(times)
    asked = {"checkpoint": str(arguments.checkpoint), "repetitions": arguments.repetitions, "ticks": arguments.ticks}
    arguments.write({**asked, "seconds": times, "versions": versions()})


def measure(arguments: Arguments) -> dict[str, list[float]]:
    """Return the processor seconds of each way of playing, one per group of episodes."""
    contest = contest_of(arguments.checkpoint, arguments.maps_dir, horizon=arguments.ticks)
    if not contest.entrants[0].policy.layers:
        raise UserError(f"{arguments.checkpoint} is feed-forward: give a policy with a memory")
    drawn = contest.env.num_agents // 8
    plans = {
        "edit of a state": ArmPlan("edit", drawn, states=(Untouched("lstm_hidden"),)),
        "edit of a state, with shadows": ArmPlan("edit", drawn, states=(Moved(),)),
        "edit of the memory": ArmPlan("edit", drawn, memories=(KeptMemory(),)),
    }
    pool = contest.pool(_WORLDS)
    times: dict[str, list[float]] = {"plain": [], **{name: [] for name in plans}}
    for repetition in range(arguments.repetitions):
        group = Group(1, tuple(range(repetition * _WORLDS, (repetition + 1) * _WORLDS)))
        times["plain"].append(seconds_of(lambda group=group: pool.play(group.seed, group.numbers)))  # type: ignore[misc]
        for name, plan in plans.items():
            times[name].append(seconds_of(lambda group=group, plan=plan: list(play_arm(pool, group, plan))))  # type: ignore[misc]
    return times


def show(times: dict[str, list[float]]) -> None:
    """Print processor seconds and ratios."""
    rows = []
    for name, seconds in times.items():
        ratios = [one / plain for one, plain in zip(seconds, times["plain"], strict=True)]
        rows.append((name, f"{statistics.median(seconds):.1f}", spread(ratios, ".2f")))
    print("Four episodes: processor seconds, and times as long as plain play; median (minimum to maximum)")
    command_line.print_table(("", "seconds", "ratio"), rows)


if __name__ == "__main__":
    command_line.run(main)
