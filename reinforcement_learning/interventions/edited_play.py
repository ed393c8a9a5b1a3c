"""Play episodes in which drawn agents are edited, and measure what that does at once and over their lives."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from activation_store.interventions import IN_PLAY, TOTAL, compared
from activation_store.layers import LSTM_CELL, LSTM_HIDDEN, memory_names
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.donor_rule import DonorRule
from agent_zoo.hooks import Hook
from agent_zoo.memory import MemoryState
from agent_zoo.memory_edits import Transplant
from agent_zoo.state_edits import Interchange
from agent_zoo.state_moments import StateMoments
from reinforcement_learning.game.ground_truth import OwnRows
from reinforcement_learning.interventions.at_once import ControlAtOnce, Outputs, Shadows, at_once, differ, donors_behind
from reinforcement_learning.interventions.experiment import ArmPlan
from reinforcement_learning.interventions.lots import DonorLots, Donors, drawn_agents
from reinforcement_learning.interventions.outcomes import DonorOutcomes, FollowedEdits, LifeOutcomes
from reinforcement_learning.interventions.recordings import ArmRecorder, KeptReplay
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished


@dataclass(frozen=True)
class PlayedGroup:
    """What a group of episodes leaves.

    Attributes:
        rows: one for each life, as in `activation_store.interventions`.
        moments: of the watched layers, by layer, and of readings, by their names.
        replay: content of the replay's file, if one of the episodes is to be kept.
    """

    rows: list[dict[str, Any]]
    moments: dict[str, StateMoments]
    replay: bytes | None = None


def play_arm(pool: PolicyPool, group: Group, plan: ArmPlan) -> Iterator[Batch | Finished | PlayedGroup]:
    """Play a group of episodes of one arm, to their end; what is recorded comes first, tick by tick."""
    yield from _EditedGame(pool, group, plan).play()


class _EditedGame:
    """One group of episodes."""

    def __init__(self, pool: PolicyPool, group: Group, plan: ArmPlan):
        self.pool, self.group = pool, group
        self.plan = copy.deepcopy(plan)  # memory edits keep memories
        self.policy: RecurrentPolicy = pool.policies[0]
        self.columns = pool.layout.entity_columns
        pool.start(group.seed, group.numbers)
        lots = [drawn_agents(group.seed, number, pool.agents, plan.drawn) for number in group.numbers]
        self.drawn = np.concatenate(lots)  # (slots,)
        self.age = np.zeros(pool.slots, dtype=np.int64)  # ticks in which each slot was edited so far
        self.shadows = Shadows(self.policy, pool.slots, plan.reported)
        self.outcomes = LifeOutcomes(pool)
        self.lots = DonorLots(self.plan.donors, self.drawn, group.seed, group.numbers)
        self.donor_outcomes = DonorOutcomes(pool.slots)
        self.controls = [ControlAtOnce(each.name, pool.slots) for each in plan.controls]
        self.moments = {layer: StateMoments.empty(self.policy.layer_units[layer]) for layer in plan.watched}
        self.moments |= {each.name: each.empty(self.policy.layer_units[each.layer]) for each in plan.readings}
        kept = [world for world, number in enumerate(group.numbers) if number == plan.replayed]
        self.replays = [KeptReplay(pool, world, self.drawn) for world in kept]
        self.followed = FollowedEdits(self.policy, pool.slots, plan.follow) if plan.follow else None
        self.recorder = ArmRecorder(pool, plan.recorded, self.drawn) if plan.recorded else None

    def play(self) -> Iterator[Batch | Finished | PlayedGroup]:
        """Play to the end."""
        while not self.pool.is_over:
            yield from self._tick()
        rows = [
            row
            for world, (number, episode) in enumerate(zip(self.group.numbers, self.pool.finished(), strict=True))
            for life in episode.lives[0]
            for row in self._rows(world, number, life)
        ]
        yield PlayedGroup(rows, self.moments, *(replay.finish() for replay in self.replays))

    def _rows(self, world: int, number: int, life: Any) -> Iterator[dict[str, Any]]:
        """Yield the row of a life, and of an agent that was drawn to be edited one for each control at once."""
        slot = world * self.pool.agents + self.pool.shared[world].agents.index(life.agent_id)
        keys = {"arm": self.plan.name, "episode": number, "agent": life.agent_id, "edited": bool(self.drawn[slot])}
        lasting = self.followed.row(slot) if self.followed else {}
        yield {**keys, **self.outcomes.row(slot, life), **self.donor_outcomes.row(slot), **lasting}
        if self.drawn[slot]:
            yield from ({**keys, "arm": each.name, **each.row(slot)} for each in self.controls)

    def _tick(self) -> Iterator[Batch | Finished]:
        slots = np.flatnonzero(self.pool.arrival.acting)
        # All slots, since selecting from the padded observations would copy 25 kB an agent.
        own = OwnRows(self.pool.arrival.observations, self.pool.layout)
        self.outcomes.before_tick(slots, own.position[slots])
        rows, donors = self._edited_rows(slots, own.values[slots])
        tick = _Tick(self.policy, self.plan, rows, donors)
        memory = self.pool.memories[0]
        device = memory.hidden.device
        edited = torch.from_numpy(slots[rows.cpu().numpy()])
        unedited = memory.take(edited.to(device))
        if len(rows):
            begun = unedited
            for each in self.plan.memories:
                if isinstance(each, Transplant):
                    each = each.taking(memory.take(torch.from_numpy(slots)[donors[each.donor].rows].to(device)))
                begun = each.begin(begun, torch.from_numpy(self.age[edited.numpy()]), edited)
            if self.plan.memories:
                memory.put(edited.to(device), begun)
            tick.begun, tick.changed = begun, differ(begun, unedited)
        tick.before = memory.take(torch.from_numpy(slots).to(device))
        with self.policy.hooked(tick.hooks()), self.recorder.capturing() if self.recorder else nullcontext():
            (choice,) = self.pool.decide()
        if self.followed:
            self.followed.follow(choice.decision)
        if len(rows):
            self.shadows.begin(edited.numpy(), unedited, tick.changed)
        self.shadows.read(choice.decision)
        if len(rows) and self.plan.edits:
            self._measure(choice, rows, edited.numpy(), unedited, tick)
        for layer, states in tick.watched.items():
            self.moments[layer] += StateMoments.of(states)
        self._read(own.values[slots], rows.numpy(), tick)
        if self.recorder:
            self.recorder.before(choice, edited.numpy() if self.plan.edits else edited.numpy()[:0])
        self.pool.advance([choice])
        self.outcomes.after_tick()
        if self.recorder:
            yield from self.recorder.after()

    def _edited_rows(self, slots: np.ndarray, own: np.ndarray) -> tuple[torch.Tensor, Mapping[DonorRule, Donors]]:
        """Which of the acting agents, given their own rows, are edited in this tick, (E,) int64, and their donors."""
        now = self.drawn[slots]
        if self.plan.edits:
            now = now & self.plan.when.now(own, self.columns, self.pool.ticks)
            if self.plan.feature is not None:
                now = now & self.plan.feature.holds(self.pool.memories[0].take(torch.from_numpy(slots)))
        if self.followed:
            now = now & self.followed.due(slots)
        rows, donors = self.lots.draw(np.flatnonzero(now), slots, own, self.columns, self.pool.ticks)
        return torch.from_numpy(rows), donors

    def _read(self, own: np.ndarray, rows: np.ndarray, tick: "_Tick") -> None:
        """Add the states of this tick to the sums of each reading, given the acting agents' own rows."""
        if self.plan.edits and not len(rows):
            return
        for each in self.plan.readings:
            if self.plan.edits:
                states, bodies = tick.edited[each.layer].cpu().numpy(), own[rows]
            else:
                states, bodies = tick.watched[each.layer], own
            self.moments[each.name] += each.sums(states, bodies, self.columns, self.pool.ticks)

    @torch.no_grad()
    def _measure(
        self, choice: EntrantActions, rows: torch.Tensor, slots: np.ndarray, unedited: MemoryState, tick: "_Tick"
    ) -> None:
        """Compare with what the same agents would do without this tick's edit, and if nobody had ever edited them."""
        decision = choice.decision
        seen = decision.observation.take(rows).to(unedited.hidden.device)
        with capture(self.policy, self.plan.reported) as states:
            distribution, value, without = self.policy(seen, unedited)
        edited = Outputs(
            decision.distribution.take(rows.to(value.device)), torch.from_numpy(decision.value)[rows], tick.edited
        )
        in_play = at_once(Outputs(distribution, value.cpu(), states), edited, self.plan.directions)
        total = self.shadows.compare(slots, edited, self.plan.directions)
        numbers = {
            compared(name, comparison): values
            for comparison, changes in ((TOTAL, total), (IN_PLAY, in_play))
            for name, values in changes.items()
        }
        far = [self.plan.distances[layer].measure(tick.edited[layer].cpu().numpy()) for layer in self.plan.distances]
        if far:
            numbers["off_manifold"] = torch.from_numpy(np.mean(far, axis=0))
        self.outcomes.add(slots, numbers)
        self._measure_controls(choice, rows, slots, unedited, Outputs(distribution, value.cpu()), tick)
        if self.followed:
            with_edit = decision.next_state.take(rows.to(value.device))
            self.followed.begin(slots, with_edit, without, in_play["kl"].cpu().numpy())
        else:
            self.age[slots] += 1
        if tick.donors:
            self.donor_outcomes.add(slots, in_play, tick.donors)
            self.donor_outcomes.add_within(slots, self._shares_within(unedited, states, tick))

    def _measure_controls(
        self, choice: EntrantActions, rows: torch.Tensor, slots: np.ndarray, unedited: MemoryState, without: Outputs,
        tick: "_Tick",
    ) -> None:  # fmt: skip
        """Measure what the controls would do in the states in which these agents, (E,), were edited in this tick."""
        if not self.controls:
            return
        device, count = unedited.hidden.device, len(rows)
        lined_up, donors = donors_behind(count, tick.donors)
        seen = choice.decision.observation.take(torch.cat([rows, lined_up])).to(device)
        others = tick.before.take(lined_up.to(device))  # nobody edits donors
        age, edited = torch.from_numpy(self.age[slots]), torch.from_numpy(slots)
        for plan, control in zip(self.plan.controls, self.controls, strict=True):
            begun = unedited
            for each in plan.memories:
                if isinstance(each, Transplant):
                    each = each.taking(others.take(donors[each.donor].rows.to(device) - count))
                begun = each.begin(begun, age, edited)
            own = _Tick(self.policy, plan, torch.arange(count), donors)
            own.before, own.changed = MemoryState.concatenate([begun, others]), differ(begun, unedited)
            with self.policy.hooked(own.hooks()):
                distribution, value, _ = self.policy(seen, own.before)
            mine = torch.arange(count, device=value.device)
            numbers = at_once(without, Outputs(distribution.take(mine), value[:count].cpu()))
            control.add(slots, numbers, tick.donors)

    def _shares_within(
        self, unedited: MemoryState, states: Mapping[str, torch.Tensor], tick: "_Tick"
    ) -> list[np.ndarray]:
        """Which share of what donors changed lies in the span of unedited states, (E,) for each layer."""
        changes = [(layer, tick.edited[layer] - states[layer]) for layer in self.plan.interchanged]
        if any(isinstance(each, Transplant) for each in self.plan.memories):
            for kind, begun, own in (
                (LSTM_HIDDEN, tick.begun.hidden, unedited.hidden), (LSTM_CELL, tick.begun.cell, unedited.cell)
            ):  # fmt: skip
                changes += zip(memory_names(kind, len(own)), begun - own, strict=True)
        return [
            self.plan.spans[layer].share(change.cpu().numpy()) for layer, change in changes if layer in self.plan.spans
        ]


class _Tick:
    """The hooks of one tick.

    Attributes:
        donors: of the edited agents.
        begun: memory with which the edited agents begin the tick; to be set before the policy runs, if there are any.
        changed: whether the edit has changed anything of each edited agent, (E,) bool; to be set likewise.
        before: memory of the acting agents before the tick; to be set before the policy runs.
        watched: states of the watched layers, (acting agents, units) each.
        edited: states of the edited agents after the edit, by layer, (E, units) each.
    """

    def __init__(self, policy: RecurrentPolicy, plan: ArmPlan, rows: torch.Tensor, donors: Mapping[DonorRule, Donors]):
        """Edit the given rows of the acting agents, (E,) int64."""
        self.plan, self.rows, self.donors = plan, rows, donors
        self.begun: MemoryState
        self.changed: torch.Tensor
        self.before: MemoryState
        self.watched: dict[str, np.ndarray] = {}
        self.edited: dict[str, torch.Tensor] = {}
        self._place = {
            name: (kind, number)
            for kind in (LSTM_HIDDEN, LSTM_CELL)
            for number, name in enumerate(memory_names(kind, policy.layers))
        }

    def hooks(self) -> dict[str, Hook]:
        """Return the hooks of a tick of all acting agents."""
        layers = dict.fromkeys([*(each.layer for each in self.plan.states), *self.plan.watched, *self.plan.reported])
        return {layer: self._hook(layer) for layer in layers}

    def _hook(self, layer: str) -> Hook:
        def edit(states: torch.Tensor) -> torch.Tensor | None:
            if layer in self.plan.watched:
                self.watched[layer] = states.cpu().numpy()
            if not len(self.rows):
                return None
            rows = self.rows.to(states.device)
            self.edited[layer] = self._edited(layer, states, rows)
            self.changed = self.changed | (self.edited[layer] != states[rows]).any(dim=1)
            is_edited = any(each.layer == layer for each in self.plan.states)
            return states.index_copy(0, rows, self.edited[layer]) if is_edited else None

        return edit

    def _edited(self, layer: str, everyone: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """States of the edited agents after the edit, given those of all acting agents before it."""
        before, states = self._before(layer, rows), everyone[rows]
        for each in self.plan.states:
            if each.layer != layer:
                continue
            if isinstance(each, Interchange):
                each = each.taking(everyone[self.donors[each.donor].rows.to(everyone.device)])
            states = each.edited(before, states)
        return states

    def _before(self, layer: str, rows: torch.Tensor) -> torch.Tensor | None:
        """The layer's states before the tick, of some acting agents; None for layers outside the memory."""
        if layer not in self._place:
            return None
        kind, number = self._place[layer]
        states = self.before.hidden if kind == LSTM_HIDDEN else self.before.cell
        return states[number, rows.to(states.device)]
