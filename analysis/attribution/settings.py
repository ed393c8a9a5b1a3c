"""The settings of one run of saliency.py: every option and its range; nothing here needs torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from common.argument_checks import at_least, between, check, result_name, seed_value, split
from common.result_places import OutputFolder
from common.user_error import UserError

Method = Literal["gradient", "integrated", "smooth", "occlusion"]

TITLES: dict[Method, str] = {
    "gradient": "gradient times input", "integrated": "integrated gradients",
    "smooth": "gradient times input, smoothed", "occlusion": "occlusion by a counterfactual",
}  # fmt: skip


MOST_LAGS = 30


@dataclass(frozen=True)
class SaliencySettings:
    """Arguments of saliency.py."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py --record standard."""
    of: str = "value"
    """What is attributed: value; HEAD:OPTION, the log-probability of an option; HEAD:OPTION-OPTION, the difference of
    two logits, such as Move.Direction:north-south; HEAD:chosen, the log-probability of the recorded choice; or
    direction:NAME, a read-out in --directions, such as a component or a probe."""
    directions: Path | None = None
    """File of directions: directions.safetensors of analyze_dynamics.py, train_probes.py or analyze_activations.py."""
    components: str = ""
    """Comma-separated directions in --directions that are read-outs of the memory, or what comes before the number in
    their names, such as ic for all independent components: the memory is also attributed to each of these."""
    event: str = ""
    """Condition on a feature of docs/features.md, such as 'distance_to_npc <= 3': samples are taken around a tick at
    which it begins to hold, half of their --ticks before it, in none of which it holds, and attributions before and
    after are compared."""
    selection: Path | None = None
    """File of points of a run on this dump that the explorer saved: each sample is taken around one of them, drawn at
    random, in the middle of its --ticks where the life is long enough on both sides."""
    method: Method = "gradient"
    """gradient: gradient times input; integrated: integrated gradients from an average view; smooth: gradient times
    input, averaged over noisy copies; occlusion: how the target changes if a tile, an entity or an item is replaced or
    removed."""
    lags: int = 8
    """Ticks back that are attributed to, through the memory, 0 to 30. With 0, and for occlusion, only the present tick
    and the memory before it."""
    samples: int = 20
    """Segments of lives to attribute, drawn at random, at least 2."""
    ticks: int = 50
    """Consecutive ticks of each segment, 1 to 1000."""
    steps: int = 16
    """Steps of integrated gradients, 2 to 1000."""
    copies: int = 9
    """Noisy copies for smooth, 2 to 1000."""
    noise: float = 0.1
    """Standard deviation of their noise, above 0; one-hot materials are 0 or 1, other features about 1 in size."""
    clusters: Path | None = None
    """Run folder of analyze_dynamics.py or analyze_activations.py of this dump: maps are also averaged over each of its
    clusters, and behaviours."""
    film: bool = False
    """Also write saliency.mp4: the view and its map side by side."""
    sample_ids: str = ""
    """Comma-separated numbers of the samples in the film and on the page, from 0; by default the first four."""
    combine_samples: bool = False
    """Average the samples, aligned at their first tick, into one film instead of one after the other."""
    check_states: int = 64
    """States used for the sanity checks, at least 8."""
    policy: Path | None = None
    """Checkpoint file that the dump was recorded from; by default NAME.safetensors in --policies-dir, where NAME is the
    dump's policy. Its hash must be the one that the dump names."""
    policies_dir: Path = Path("policies")
    """Folder of policies."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""
    name: str | None = None
    """Name of the run's folder; by default that of the dump, what is attributed, and the method."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        of = "".join(character if character.isalnum() or character in "_.-" else "_" for character in self.of)
        at = "".join(character if character.isalnum() or character in "_.-<>=!" else "" for character in self.event)
        at = at or (self.selection.stem if self.selection else "")
        name = f"{self.dump.resolve().name}-saliency-{of}-{self.method}" + (f"-at-{at}" if at else "")
        return self.output_dir / (self.name or name)

    @property
    def before(self) -> int:
        """Ticks of a sample before the event, or before the selected point."""
        return self.ticks // 2

    @property
    def window(self) -> int:
        """Ticks of a window: the present one and those before it."""
        return 1 if self.method == "occlusion" else self.lags + 1

    @property
    def shown(self) -> tuple[int, ...]:
        """Numbers of the samples that are shown.

        Raises:
            UserError: one is not a number, or there is no such sample.
        """
        if not self.sample_ids:
            return tuple(range(min(4, self.samples)))
        names = split(self.sample_ids)
        for name in names:
            if not (name.isascii() and name.isdigit() and int(name[:6]) < self.samples):
                raise UserError(f"--sample-ids is {self.sample_ids}: give numbers from 0 to {self.samples - 1}")
        return tuple(dict.fromkeys(int(name) for name in names))

    def check(self) -> None:
        """Refuse values that are invalid for any dump.

        Raises:
            UserError: names the option and the allowed values.
        """
        check(
            self,
            name=result_name(self.name),
            lags=between(self.lags, 0, MOST_LAGS),
            samples=at_least(self.samples, 2),
            ticks=between(self.ticks, 1, 1000),
            steps=between(self.steps, 2, 1000),
            copies=between(self.copies, 2, 1000),
            noise=(self.noise > 0, "above 0"),
            check_states=at_least(self.check_states, 8),
            seed=seed_value(self.seed),
        )
        _ = self.shown
        if self.of.startswith("direction:") and self.directions is None:
            raise UserError(f"--of is {self.of}: name the file that holds it with --directions")
        if self.components and self.directions is None:
            raise UserError(f"--components is {self.components}: name the file that holds them with --directions")
        if self.event and self.selection is not None:
            raise UserError("--event and --selection both say where samples are taken: give one of them")
        if self.event and self.ticks < 2:
            raise UserError(f"--ticks is {self.ticks}: --event needs at least 2, one before it and one from then on")
