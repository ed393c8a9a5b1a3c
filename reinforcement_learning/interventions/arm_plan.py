"""How the agents of one arm are edited, and what is measured on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from activation_store.directions import Direction
from agent_zoo.donor_rule import DonorRule
from agent_zoo.interchange import Interchange
from agent_zoo.linear_readings import Reading
from agent_zoo.memory_edits import MemoryEdit
from agent_zoo.state_edits import StateEdit
from agent_zoo.state_moments import Distances
from agent_zoo.transplant import Transplant
from reinforcement_learning.interventions.donor_outcomes import DataSpan
from reinforcement_learning.interventions.feature_condition import FeatureCondition
from reinforcement_learning.interventions.when import When


@dataclass(frozen=True, eq=False)
class ArmPlan:
    """How the agents of one arm are edited.

    Attributes:
        name: of the arm.
        drawn: number of agents in each world that are drawn by lot.
        when: the ticks in which they are edited.
        feature: a condition on the memory with which a tick begins, that must hold too; None for none.
        states: edits of layers, applied in this order.
        memories: edits of the memory between ticks, applied in this order.
        watched: layers whose unedited states are summed up; of unedited arms.
        distances: of edited states from unedited ones, by layer.
        directions: whose read-outs are compared before and after the edit.
        spans: of unedited states, by layer; what donors change is compared with them.
        readings: variables that are summed up together with a layer's states: in an unedited arm with the states of
            all agents, which must be watched, and otherwise with edited states.
        replayed: number of the episode whose replay is kept; None for none.
        follow: number of ticks for which agents are followed after each edit, which is then made in a single tick; 0 if
            they are edited in all ticks.
        controls: plans of random edits that are not played, but compared with the edit in its own states, at once.
        recorded: layers whose activations are recorded in every tick; none if the arm is not recorded.
    """

    name: str
    drawn: int
    when: When = field(default_factory=When)
    states: tuple[StateEdit | Interchange, ...] = ()
    memories: tuple[MemoryEdit | Transplant, ...] = ()
    watched: tuple[str, ...] = ()
    distances: Mapping[str, Distances] = field(default_factory=dict)
    directions: tuple[Direction, ...] = ()
    spans: Mapping[str, DataSpan] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    replayed: int | None = None
    recorded: tuple[str, ...] = ()
    follow: int = 0
    feature: FeatureCondition | None = None
    controls: "tuple[ArmPlan, ...]" = ()

    @property
    def donors(self) -> tuple[DonorRule, ...]:
        """How the donors of the edits that need them are drawn."""
        return tuple(
            each.donor for each in (*self.memories, *self.states) if isinstance(each, Transplant | Interchange)
        )

    @property
    def interchanged(self) -> tuple[str, ...]:
        """Layers in which read-outs are taken from donors."""
        return tuple(dict.fromkeys(each.layer for each in self.states if isinstance(each, Interchange)))

    @property
    def reported(self) -> tuple[str, ...]:
        """Layers whose edited states are compared with unedited ones."""
        layers = [*self.distances, *(each.layer for each in self.directions), *self.interchanged]
        return tuple(dict.fromkeys(layers))

    @property
    def edits(self) -> bool:
        """Whether anything is edited."""
        return bool(self.states or self.memories)
