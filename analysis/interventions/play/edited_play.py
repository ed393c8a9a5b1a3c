"""Play episodes in which drawn agents are edited, and measure what that does at once and over their lives."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from activation_store.layers import ENCODER_OUTPUT
from agent_zoo.base import RecurrentPolicy
from agent_zoo.memory import Hook, MemoryState
from analysis.interventions.edits.donor_rule import DonorLots, DonorRule, Donors, drawn_agents
from analysis.interventions.edits.edit_options import GOAL, PATHS
from analysis.interventions.edits.linear_readings import StateMoments
from analysis.interventions.edits.memory_edits import memory_states
from analysis.interventions.play.experiment import ArmPlan
from analysis.interventions.play.outcomes import (
    FollowedEdits,
    LifeOutcomes,
    OutcomesAtOnce,
    Outputs,
    Shadows,
    at_once,
    differ,
    donors_behind,
    goals_of,
    outputs_of,
    share_within,
)
from analysis.interventions.play.recordings import ArmRecorder, KeptReplay
from reinforcement_learning.play.contest import Group
from reinforcement_learning.play.policy_pool import EntrantActions, PolicyPool
from reinforcement_learning.play.recorder import Batch, Finished, OwnRows


@dataclass(frozen=True)
class PlayedGroup:
    """What a group of episodes leaves."""

    rows: list[dict[str, Any]]  # one for each life, as in `activation_store.interventions`
    moments: dict[str, StateMoments]  # of the watched layers, by layer, and of readings, by their names
    replay: bytes | None = None  # content of the replay's file, if one of the episodes is to be kept


def play_arm(pool: PolicyPool, group: Group, plan: ArmPlan) -> Iterator[Batch | Finished | PlayedGroup]:
    """Play a group of episodes of one arm, to their end; what is recorded comes first, tick by tick."""
    yield from _EditedGame(pool, group, plan).play()


class _EditedGame:
    """One group of episodes."""

    def __init__(self, pool: PolicyPool, group: Group, plan: ArmPlan):
        self.pool, self.group = pool, group
        self.plan = copy.deepcopy(plan)  # memory edits keep memories
        self.policy: RecurrentPolicy = pool.policies[0]
        self.columns = (*pool.layout.entity_columns, GOAL)
        pool.start(group.seed, group.numbers)
        self.goals = goals_of(pool)  # (slots,)
        lots = [drawn_agents(group.seed, number, pool.agents, plan.drawn) for number in group.numbers]
        self.drawn = np.concatenate(lots)  # (slots,)
        self.age = np.zeros(pool.slots, dtype=np.int64)  # ticks in which each slot was edited so far
        self.shadows = Shadows(self.policy, pool.slots, plan.reported)
        self.outcomes = LifeOutcomes(pool, self.goals, plan.when.first)
        self.lots = DonorLots(self.plan.donors, self.drawn, group.seed, group.numbers)
        self.at_once = OutcomesAtOnce(pool.slots)
        self.controls = [OutcomesAtOnce(pool.slots) for _ in plan.controls]
        self.moments = {layer: StateMoments.empty(self.policy.layer_units[layer]) for layer in plan.watched}
        self.moments |= {
            reading.name: reading.empty(self.policy.layer_units[reading.layer]) for reading in plan.readings
        }
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
        edited = {"edited_ticks": self.at_once.ticks[slot]} if self.at_once.ticks[slot] else {}
        yield {**keys, **self.outcomes.row(slot, life), **edited, **self.at_once.row(slot), **lasting}
        if self.drawn[slot]:
            for plan, control in zip(self.plan.controls, self.controls, strict=True):
                yield {**keys, "arm": plan.name, **control.row(slot)}

    def _tick(self) -> Iterator[Batch | Finished]:
        slots = np.flatnonzero(self.pool.arrival.acting)
        # All slots, since selecting from the padded observations would copy 25 kB an agent.
        own = OwnRows(self.pool.arrival.observations, self.pool.layout)
        self.outcomes.before_tick(slots, own.position[slots])
        known = np.column_stack([own.values[slots], self.goals[slots]])  # (B, columns)
        rows, donors = self._edited_rows(slots, known)
        memory, acting = self.pool.memories[0], torch.from_numpy(slots)
        device, edited = memory.hidden.device, slots[rows.numpy()]
        unedited = begun = memory.take(acting[rows].to(device))
        if self.plan.memories and len(rows):
            given = {rule: memory.take(acting[donor.rows].to(device)) for rule, donor in donors.items()}
            begun = self.plan.begun(unedited, torch.from_numpy(self.age[edited]), acting[rows], given)
            memory.put(acting[rows].to(device), begun)
        tick = _Tick(self.plan, rows, donors, memory.take(acting.to(device)), differ(begun, unedited))
        hooks = tick.hooks() if "heads" in self.plan.through else {}
        with self.policy.hooked(hooks), self.recorder.capturing() if self.recorder else nullcontext():
            (choice,) = self.pool.decide()
        if self.plan.states and len(rows) and set(self.plan.through) != set(PATHS):
            self._hold_other_paths(choice, tick)
        if self.followed:
            self.followed.follow(choice.decision)
        if len(rows):
            self.shadows.begin(edited, unedited, tick.changed)
        self.shadows.read(choice.decision)
        if len(rows) and self.plan.edits:
            self._measure(choice, edited, unedited, begun, tick)
        for layer, states in tick.watched.items():
            self.moments[layer] += StateMoments.of(states)
        self._read(known, tick)
        if self.recorder:
            self.recorder.before(choice, edited if self.plan.edits else edited[:0])
        self.pool.advance([choice])
        self.outcomes.after_tick()
        if self.recorder:
            yield from self.recorder.after()

    @torch.no_grad()
    def _hold_other_paths(self, choice: EntrantActions, tick: "_Tick") -> None:
        """Give the memory after the tick what the edit does to it along its paths, and no more.

        If the heads are among these, the decision was made with the edit, and the other paths get what the tick
        computes without it. Otherwise it was made without, and the edit's paths get what the tick computes with it.
        """
        decision, edits_heads = choice.decision, "heads" in self.plan.through
        with self.policy.hooked({} if edits_heads else tick.hooks()):
            *_, after = self.policy(decision.observation.to(tick.before.hidden.device), tick.before)
        rows = tick.rows.to(after.hidden.device)
        for path in ("hidden", "cell"):
            if (path in self.plan.through) != edits_heads:
                getattr(decision.next_state, path)[:, rows] = getattr(after, path)[:, rows]

    def _edited_rows(self, slots: np.ndarray, own: np.ndarray) -> tuple[torch.Tensor, Mapping[DonorRule, Donors]]:
        """Which of the acting agents, given their own rows, are edited in this tick, (E,) int64, and their donors."""
        now = self.drawn[slots]
        if self.plan.edits:
            memory = self.pool.memories[0].take(torch.from_numpy(slots))
            now = now & self.plan.when.now(own, self.columns, self.pool.ticks, memory)
        if self.followed:
            now = now & self.followed.due(slots)
        rows, donors = self.lots.draw(np.flatnonzero(now), slots, own, self.columns, self.pool.ticks)
        return torch.from_numpy(rows), donors

    def _read(self, own: np.ndarray, tick: "_Tick") -> None:
        """Add the states of this tick to the sums of each reading, given the acting agents' own rows."""
        if self.plan.edits and not len(tick.rows):
            return
        for reading in self.plan.readings:
            if self.plan.edits:
                states, bodies = tick.edited[reading.layer].cpu().numpy(), own[tick.rows.numpy()]
            else:
                states, bodies = tick.watched[reading.layer], own
            self.moments[reading.name] += reading.sums(states, bodies, self.columns, self.pool.ticks)

    @torch.no_grad()
    def _measure(
        self, choice: EntrantActions, slots: np.ndarray, unedited: MemoryState, begun: MemoryState, tick: "_Tick"
    ) -> None:
        """Compare with what the agents of these slots would do without this tick's edit, and had nobody edited them."""
        decision, rows = choice.decision, tick.rows
        without, after = outputs_of(self.policy, decision, rows, unedited, self.plan.reported)
        there = rows.to(unedited.hidden.device)
        edited = Outputs(decision.distribution.take(there), torch.from_numpy(decision.value)[rows], tick.edited)
        in_play = at_once(without, edited, "in_play", self.plan.directions)
        numbers = {**self.shadows.compare(slots, edited, self.plan.directions), **in_play}
        far = [distance(tick.edited[layer].cpu().numpy()) for layer, distance in self.plan.distances.items()]
        if far:
            numbers["off_manifold"] = torch.from_numpy(np.mean(far, axis=0))
        self.at_once.add(slots, numbers, tick.donors)
        if self.controls:
            self._measure_controls(choice, slots, unedited, without, tick)
        if self.followed:
            self.followed.begin(slots, decision.next_state.take(there), after, in_play["kl_in_play"].cpu().numpy())
        else:
            self.age[slots] += 1
        if tick.donors:
            changes = [(layer, tick.edited[layer] - without.states[layer]) for layer in self.plan.interchanged]
            if any(edit.donor for edit in self.plan.memories):
                own = memory_states(unedited)
                changes += [(layer, state - own[layer]) for layer, state in memory_states(begun).items()]
            spans = self.plan.spans
            shares = [share_within(spans[layer], change.cpu().numpy()) for layer, change in changes if layer in spans]
            self.at_once.add_within(slots, shares)

    def _measure_controls(
        self, choice: EntrantActions, slots: np.ndarray, unedited: MemoryState, without: Outputs, tick: "_Tick"
    ) -> None:
        """Measure what the controls would do in the states in which these agents were edited; arguments as `_measure`.

        A control that is played shows what it does to lives, but costs a whole arm. At once, at a forward pass a tick,
        a control is what the policy would have done in the very state in which an agent was edited, had it been edited
        along a random direction instead. Donors, whom nobody edits, are lined up behind the edited agents.
        """
        device, count = unedited.hidden.device, len(slots)
        behind, donors = donors_behind(count, tick.donors)
        seen = choice.decision.observation.take(torch.cat([tick.rows, behind])).to(device)
        others = tick.before.take(behind.to(device))
        given = {rule: others.take(donor.rows.to(device) - count) for rule, donor in donors.items()}
        age, edited = torch.from_numpy(self.age[slots]), torch.from_numpy(slots)
        encoded, candidates = self.policy.encode(seen)  # once: no control edits what is encoded
        for plan, control in zip(self.plan.controls, self.controls, strict=True):
            begun = plan.begun(unedited, age, edited, given)
            before = MemoryState.concatenate([begun, others])
            hooks = _Tick(plan, torch.arange(count), donors, before, differ(begun, unedited)).hooks()
            with self.policy.hooked(hooks if "heads" in plan.through else {}):
                hidden, _ = self.policy.remember(self.policy.through(ENCODER_OUTPUT, encoded), before)
                distribution, value = self.policy.decode(hidden, candidates, seen)
            mine = torch.arange(count, device=value.device)
            # In play, never in total: a control edits the state that the edit's own arm was in.
            numbers = at_once(without, Outputs(distribution.take(mine), value[:count].cpu()), "in_play")
            control.add(slots, numbers, tick.donors)


class _Tick:
    """The hooks of one tick.

    Attributes:
        rows: of the edited agents among the acting ones, (E,) int64.
        before: memory of the acting agents before the tick, after edits of it.
        changed: whether the edit has changed anything of each edited agent, (E,) bool.
        watched: states of the watched layers, (acting agents, units) each.
        edited: states of the edited agents after the edit, by layer, (E, units) each.
    """

    def __init__(
        self, plan: ArmPlan, rows: torch.Tensor, donors: Mapping[DonorRule, Donors], before: MemoryState,
        changed: torch.Tensor,
    ):  # fmt: skip
        self._plan, self.rows, self.donors, self.before, self.changed = plan, rows, donors, before, changed
        self.watched: dict[str, np.ndarray] = {}
        self.edited: dict[str, torch.Tensor] = {}

    def hooks(self) -> dict[str, Hook]:
        """Return the hooks of a tick of all acting agents."""
        plan = self._plan
        layers = dict.fromkeys([*plan.layers, *plan.watched, *plan.reported])
        return {layer: self._hook(layer) for layer in layers}

    def _hook(self, layer: str) -> Hook:
        def hook(states: torch.Tensor) -> torch.Tensor | None:
            if layer in self._plan.watched:
                self.watched[layer] = states.cpu().numpy()
            if not len(self.rows):
                return None
            rows = self.rows.to(states.device)
            if layer not in self._plan.layers:
                self.edited[layer] = states[rows]
                return None
            given = {rule: states[donor.rows.to(states.device)] for rule, donor in self.donors.items()}
            edited = self._plan.edited(layer, self.before.take(rows), states[rows], given)
            self.edited[layer] = edited
            self.changed = self.changed | (edited != states[rows]).any(dim=1)
            return states.index_copy(0, rows, edited)

        return hook
