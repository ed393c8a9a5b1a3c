"""The settings of one analysis of dynamics: every option of analyze_dynamics.py and its range."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from activation_store.layers import BOTTLENECK, LSTM_CELL, LSTM_HIDDEN
from activation_store.recording import check_recorded
from activation_store.schema import DumpMetadata
from analysis.clusters.settings import FEATURES_COMPARED
from analysis.runs.record_limit import FEWEST_KEPT
from analysis.statistics.inference import Inference
from common.argument_checks import at_least, between, check, result_name, seed_value, split
from common.result_places import OutputFolder
from common.user_error import UserError

_MOST_COMPONENTS = 256
MOST_PAIRED = 64
"""Most independent and non-negative components: correlations and Jacobians grow with the square of their number."""


@dataclass(frozen=True)
class DynamicsSettings:
    """Arguments of analyze_dynamics.py."""

    dump: tyro.conf.Positional[Path]
    """Dump: a folder written by extract_activations.py --record standard, such as activation_data/NAME."""
    layer: str = LSTM_CELL
    """State of the memory to analyse: lstm_cell or lstm_hidden, or of an earlier layer, such as lstm_cell_1. Any other
    layer of the dump that changes with ticks, such as world_hidden of simulated lives, is analysed without what needs
    the policy's own update of its memory: Jacobians, spectra, half-lives, memory length and fixed points."""
    policy: Path | None = None
    """Checkpoint file that the dump was recorded from; by default NAME.safetensors in --policies-dir, where NAME is the
    dump's policy. Its hash must be the one that the dump names."""
    policies_dir: Path = Path("policies")
    """Folder of policies."""
    components: int = 16
    """Components of each decomposition, 2 to 256 and at most the layer's units; independent and non-negative ones at
    most 64."""
    clusters: int = 32
    """Ward clusters of single states, 2 to 1000."""
    behaviours: int = 12
    """Behaviours: Ward clusters of short trajectories, 2 to 100."""
    behaviours_of: str = ""
    """Comma-separated layers whose states and differences are behaviours together, each weighing the same; by default
    those of --layer. `lstm_hidden,world_hidden` of simulated lives finds stretches in which agent and world go on
    alike, such as fights."""
    subsample: int = 10
    """Decompositions and clusters use one in this many records of each life, at least 1 (all)."""
    max_records: int = 200_000
    """About how many records to keep at most, at least 1000, 15 kB of memory each. Where --subsample would keep
    more, fewer of each life are kept."""
    skip_first: int = 1
    """Number of ticks to skip at the start of each life in decompositions and clusters, at least 0."""
    features: str = FEATURES_COMPARED
    """Comma-separated features to compare components and clusters with: sets (default, choices, ways, extended) or
    names from docs/features.md."""
    lives: int = 100
    """Whole lives, drawn at random, for everything that follows ticks, at least 8. Lives are the units of its tests."""
    lags: int = 10
    """Largest lag of correlations and Jacobians in ticks, 1 to 64."""
    states: int = 2000
    """States at which Jacobians of components are computed, at least 10."""
    spectrum_states: int = 200
    """States at which all eigenvalues of the memory's one-tick Jacobian are computed, at least 10."""
    reach: int = 64
    """Ticks for which changes are followed, and furthest tick back of an observation that is replaced, 2 to 256. Needs
    lives of more than twice as many ticks."""
    followed_states: int = 200
    """States from which changes are followed, at least 10."""
    interventions: str = ""
    """Comma-separated run folders of intervene.py --follow on this policy, each of which steers or collapses along one
    direction of its memory: the half-lives that they measured in the running game stand beside those of the same edit
    here."""
    circuit: str = ""
    """Name of a direction in --directions that reads a state of an LSTM: instead of everything else, what writes it in
    the first --reach ticks of lives, gate by gate and input by input, which units keep it, and which heads read it."""
    directions: Path | None = None
    """directions.safetensors of train_probes.py, analyze_dynamics.py or another run on this policy, for --circuit."""
    tsne_records: int = 3000
    """Records in the t-SNE plane, 200 to 100000; its time grows steeply with them."""
    permutations: int = 299
    """Circular shifts per test, 99 to 100000."""
    bootstraps: int = 10
    """Refits to resampled lives, for the stability of components and clusters, 2 to 1000."""
    seed: int = 42
    """Random seed, 0 to 4294967295."""
    name: str | None = None
    """Name of the run's folder; by default that of the dump followed by the layer and -dynamics."""
    output_dir: OutputFolder = Path("analysis_results")
    """Folder that --name goes into."""

    @property
    def of_memory(self) -> bool:
        """Whether the layer is a state of the policy's memory, so that the policy's own update can be studied."""
        return self.layer.startswith((LSTM_CELL, LSTM_HIDDEN))

    @property
    def inference(self) -> Inference:
        """How features of clusters and behaviours are compared."""
        return Inference(self.permutations, self.permutations, seed=self.seed)

    @property
    def behaviour_layers(self) -> tuple[str, ...]:
        """Layers whose short trajectories are behaviours."""
        return split(self.behaviours_of) or (self.layer,)

    @property
    def run_folder(self) -> Path:
        """The run's folder."""
        of = f"-{'+'.join(self.behaviour_layers)}" if self.behaviours_of else ""
        if self.circuit:
            words = f"{self.dump.resolve().name}-circuit-{self.circuit.replace('/', '_')}"
            return self.output_dir / (self.name or words)
        return self.output_dir / (self.name or f"{self.dump.resolve().name}-{self.layer}-dynamics{of}")

    def check(self) -> None:
        """Refuse values that are invalid for any dump.

        Raises:
            UserError: names the option and the allowed values.
        """
        check(
            self,
            name=result_name(self.name),
            components=between(self.components, 2, _MOST_COMPONENTS),
            clusters=between(self.clusters, 2, 1000),
            behaviours=between(self.behaviours, 2, 100),
            subsample=at_least(self.subsample, 1),
            max_records=at_least(self.max_records, FEWEST_KEPT),
            skip_first=at_least(self.skip_first, 0),
            lives=at_least(self.lives, 8),
            lags=between(self.lags, 1, 64),
            states=at_least(self.states, 10),
            spectrum_states=at_least(self.spectrum_states, 10),
            reach=between(self.reach, 2, 256),
            followed_states=at_least(self.followed_states, 10),
            tsne_records=between(self.tsne_records, 200, 100_000),
            permutations=between(self.permutations, 99, 100_000),
            bootstraps=between(self.bootstraps, 2, 1000),
            seed=seed_value(self.seed),
        )
        if bool(self.circuit) != (self.directions is not None):
            raise UserError(
                "--circuit and --directions go together: name a direction, and the directions.safetensors that holds it"
            )
        if self.circuit and (self.behaviours_of or self.interventions):
            raise UserError("--circuit is a run of its own: leave --behaviours-of and --interventions out")

    def check_against(self, metadata: DumpMetadata) -> None:
        """Refuse settings that this dump cannot satisfy according to its metadata.

        Raises:
            UserError: the layer is not in the dump or never changes in a life, or has too few units or records.
        """
        if self.circuit:
            return  # the direction names the layer, and only whole lives are read
        self._check_layer(self.layer, "--layer", metadata)
        for layer in self.behaviour_layers:
            self._check_layer(layer, "--behaviours-of", metadata)
        if len(set(self.behaviour_layers)) < len(self.behaviour_layers):
            raise UserError(f"--behaviours-of is {self.behaviours_of}: it names a layer twice")
        if self.interventions and not self.of_memory:
            raise UserError(f"--interventions does nothing with --layer {self.layer}, which is no state of the memory")
        if self.components > (units := metadata.layers[self.layer]):
            raise UserError(f"--components is {self.components}: layer {self.layer} has {units} units only")
        kept = min(metadata.records, metadata.records // self.subsample + metadata.lives)
        needed = max(2 * self.clusters, 4 * self.components, 100)
        if kept < needed:
            raise UserError(
                f"too few records: --subsample {self.subsample} keeps at most {kept} of {self.dump}, "
                f"--clusters {self.clusters} and --components {self.components} need {needed}; lower the settings or "
                "extract more episodes"
            )

    def _check_layer(self, layer: str, option: str, metadata: DumpMetadata) -> None:
        check_recorded(self.dump, metadata, layer)
        if layer == BOTTLENECK:
            raise UserError(f"{option} is {layer}, which is the same in all ticks of a life: nothing moves in it")
