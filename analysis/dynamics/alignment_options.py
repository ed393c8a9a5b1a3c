"""The options of `intervene.py --edit interchange --learn`; loads nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from activation_store.layers import LSTM_CELL
from common.argument_checks import at_least, between, check, seed_value
from common.user_error import UserError

GOAL = "self_goal"


@dataclass(frozen=True)
class LearnOptions:
    """Arguments of intervene.py --edit interchange --learn."""

    learn: Path
    """Dump of the policy, recorded with --layers all: the subspace whose exchange makes the policy act as one with
    another value of --donor would is learnt on two thirds of its lives, and tried on the others."""
    donor: str
    """What is to be exchanged: self_goal, the side of the map that is the agent's task; or a feature of
    docs/features.md, such as self_food, divided at its median."""
    edit: Literal["interchange"] = "interchange"
    """The edit that it is learnt for."""
    layer: str = LSTM_CELL
    """State of the memory that it is a subspace of."""
    dimensions: int = 1
    """Dimensions of the subspace, 1 to 16."""
    from_tick: int = 0
    """First tick of the episode that is used, such as one in which nothing shows the value any more."""
    lives: int = 300
    """Lives, drawn at random, at least 16."""
    policy: Path | None = None
    """Checkpoint file that the dump was recorded from; by default NAME.safetensors in --policies-dir, where NAME is the
    dump's policy."""
    policies_dir: Path = Path("policies")
    """Folder of policies."""
    seed: int = 0
    """Random seed, 0 to 4294967295."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of the run; by default interventions/ and a name made of the dump, the layer and --donor."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        words = f"{self.learn.resolve().name}-learn-{self.layer}-{self.donor}"
        return self.output or Path("interventions") / (words + (f"-{self.dimensions}" if self.dimensions > 1 else ""))

    def check(self) -> None:
        """Refuse values that are invalid for any dump.

        Raises:
            UserError: names the option and the allowed values.
        """
        if self.donor == "tick":
            raise UserError("--donor is tick: all agents are in the same tick; name a feature such as self_food")
        check(
            self,
            dimensions=between(self.dimensions, 1, 16),
            from_tick=at_least(self.from_tick, 0),
            lives=at_least(self.lives, 16),
            seed=seed_value(self.seed),
        )
        if not self.layer.startswith("lstm_"):
            raise UserError(f"--layer is {self.layer}: name a state of the memory, such as lstm_cell")
