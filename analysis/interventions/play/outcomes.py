"""What a life leaves, counted tick by tick: what agents did, what an edit did at once, and how long it lasted.

What an edit does at once is compared with the same agent without this tick's edit (in play), with what the agent would
do if nobody had ever edited it (in total), and with what random edits would do in the very same states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from nmmo.lib.material import Foilage
from nmmo.systems.item import ItemState

from activation_store.directions import Direction, planned_displacement
from activation_store.interventions import Comparison, Outcome
from activation_store.schema import OPTIONS
from agent_zoo.base import RecurrentPolicy
from agent_zoo.capture import capture
from agent_zoo.memory import MemoryState
from agent_zoo.network_parts.distribution import ActionDistribution
from analysis.interventions.edits.donor_rule import DonorRule, Donors
from reinforcement_learning.game.fast_game.ways import STEPS, side_of_task
from reinforcement_learning.game.life import CAUSES_OF_DEATH, Life
from reinforcement_learning.play.policy_pool import PolicyPool
from reinforcement_learning.play.stepper import Decision

_PER_TICKS = 100
_ARMOUR_TICK = 100
"""Ticks after which an agent's armour is looked at. It grows with age, so a mean over lives would tell their length."""
_ITEM = ItemState.State.attr_name_to_col
_DEFENCE = [_ITEM[f"{style}_defense"] for style in OPTIONS["Attack.Style"]]
_FAR = np.iinfo(np.int16).max


def goals_of(pool: PolicyPool) -> np.ndarray:
    """Return the number of the side that each slot's agent has the task to go to, -1 for none, (slots,) int64."""
    tasks = (shared.world.game.agent_task_map[agent][0] for shared in pool.shared for agent in shared.agents)
    return np.array([side_of_task(task) for task in tasks])


class LifeOutcomes:
    """Counts for every slot of a pool during one group of episodes."""

    def __init__(self, pool: PolicyPool, goals: np.ndarray, first_tick: int):
        """Start to count in the episodes that the pool has started; moves towards the goal from a tick on.

        `goals` are those of each slot, as `goals_of` returns them.
        """
        self.pool = pool
        self._goals, self._first_tick = STEPS[goals], first_tick  # (slots, 2)
        self._moved, self._towards = np.zeros((pool.slots, 2)), np.zeros(pool.slots)
        self._moves_counted = np.zeros(pool.slots)
        self._dealt, self._taken = np.zeros(pool.slots), np.zeros(pool.slots)
        self._defence = np.full(pool.slots, np.nan)  # of what each wears after so many ticks
        self._food_seen, self._approached = np.zeros(pool.slots), np.zeros(pool.slots)
        self._last = np.full((pool.slots, 2), np.nan)  # positions, row and column
        self._slots = np.zeros(0, dtype=np.int64)  # that acted in the last tick
        self._food = np.zeros((0, 2), dtype=np.int16)  # the food tile nearest to each of them
        self._distance = np.zeros(0, dtype=np.int16)  # to it; `_FAR` if none is in view

    def before_tick(self, slots: np.ndarray, position: np.ndarray) -> None:
        """Look at acting agents in their slots, (B,) int64, and places on the map, (B, 2) int16, before they act."""
        self._count_approaches(slots, position)
        self._count_moves(slots, position)
        if self.pool.ticks == _ARMOUR_TICK:
            items = self.pool.arrival.observations["Inventory"][slots]  # (B, items, columns)
            worn = items[:, :, _ITEM["equipped"]] != 0
            self._defence[slots] = (items[:, :, _DEFENCE].sum(axis=2) * worn).sum(axis=1)
        tiles = self.pool.arrival.observations["Tile"][slots]
        self._slots, (self._food, self._distance) = slots, _nearest_food(tiles, position)

    def _count_moves(self, slots: np.ndarray, position: np.ndarray) -> None:
        """Add the last tick's steps; a jump is no step: the world has moved the agent."""
        step = position - self._last[slots]  # NaN in a life's first tick
        step[~(np.abs(step).sum(axis=1) <= 1)] = 0
        self._moved[slots] += step
        if self.pool.ticks > self._first_tick:
            self._towards[slots] += (step * self._goals[slots]).sum(axis=1)
            self._moves_counted[slots] += 1
        self._last[slots] = position

    def after_tick(self) -> None:
        """Read what the engine counted for the agents whose lives have just ended."""
        for world, (shared, info) in enumerate(zip(self.pool.shared, self.pool.worlds.infos, strict=True)):
            for life in info.get("lives", ()):
                game, slot = shared.world.game, world * self.pool.agents + shared.agents.index(life.agent_id)
                player = (game.dead_this_tick if life.died else game.realm.players)[life.agent_id]
                self._dealt[slot] = player.history.damage_inflicted
                self._taken[slot] = player.history.damage_received

    def _count_approaches(self, slots: np.ndarray, position: np.ndarray) -> None:
        """Count who is nearer now to the food tile that was the nearest before the last tick."""
        saw = self._distance < _FAR
        _, now, before = np.intersect1d(slots, self._slots[saw], return_indices=True)
        moved = np.abs(self._food[saw][before] - position[now]).sum(axis=1)
        self._food_seen[slots[now]] += 1
        self._approached[slots[now]] += moved < self._distance[saw][before]

    def row(self, slot: int, life: Life) -> dict[str, Any]:
        """Return the outcomes of one life by name; those that do not exist for it are left out."""
        done = {
            "ticks": life.ticks,
            "reward": life.total_reward,
            "task_progress": life.task_progress,
            "level": life.level,
            "meals": _PER_TICKS * life.events.get("EAT_FOOD", 0) / life.ticks,
            "drinks": _PER_TICKS * life.events.get("DRINK_WATER", 0) / life.ticks,
            "damage_dealt": _PER_TICKS * self._dealt[slot] / life.ticks,
            "damage_taken": _PER_TICKS * self._taken[slot] / life.ticks,
            **{f"died_of/{cause}": float(life.cause_of_death == cause) for cause in CAUSES_OF_DEATH},
        }
        if np.isfinite(self._defence[slot]):
            done["armour"] = self._defence[slot]
        if self._food_seen[slot]:
            done["towards_food"] = self._approached[slot] / self._food_seen[slot]
        if life.ticks > 1:
            south, east = self._moved[slot] / (life.ticks - 1)
            done |= {"south": _PER_TICKS * south, "east": _PER_TICKS * east}
        if self._goals[slot].any() and self._moves_counted[slot]:
            done["towards_goal"] = _PER_TICKS * self._towards[slot] / self._moves_counted[slot]
            done["right_way"] = float(self._towards[slot] > 0)
        return done


def _nearest_food(tiles: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest food tile in each view, (B, 2), and the moves that it is away, (B,); `_FAR` if there is none.

    `tiles` are row, column and material of each tile in view, (B, tiles, 3) int16.
    """
    moves = np.abs(tiles[:, :, :2] - position[:, None]).sum(axis=2)  # (B, tiles)
    moves = np.where(tiles[:, :, 2] == Foilage.index, moves, _FAR)
    nearest = moves.argmin(axis=1)
    rows = np.arange(len(tiles))
    return tiles[rows, nearest, :2], moves[rows, nearest]


_FOLLOWS = ("follows_lower", "follows_higher")
_SMALLEST_GAIN = 1e-4  # of a probability; smaller ones may be rounding
_SMALLEST_CHANGE = 1e-5  # length of a change of a state; likewise


def share_within(span: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Return the share of each squared change that lies in a span, (B, units) -> (B,); NaN without a change."""
    wide = changes.astype(np.float64)
    whole, inside = (wide**2).sum(axis=1), ((wide @ span.T) ** 2).sum(axis=1)
    return np.divide(inside, whole, out=np.full(len(whole), np.nan), where=whole > _SMALLEST_CHANGE**2)


class OutcomesAtOnce:
    """What an edit does at once, or one of its controls, in each edited tick; for every slot of one group of episodes.

    `follows_higher/FEATURE/HEAD/OPTION` is the share of ticks with a donor of a higher value in which the option's
    probability rises, `follows_lower/...` of ticks with a donor of a lower value in which it falls. The mean of both is
    the interchange accuracy (Geiger et al. 2021) of the hypothesis that the probability depends on the feature. It is
    expected to be 0.5 if the donor's value does not matter, even if nearly all donors are on one side. Ticks in which
    the probability does not move do not count.

    `within_data` is the share of the squared change that lies in the span of the components that hold 99% of the
    variance of unedited states. Effects of a change outside of it may come from parts of the network that are never
    active otherwise (Makelov, Lange and Nanda 2024, "Is this the subspace you are looking for?").
    """

    def __init__(self, slots: int):
        """Start to count for this number of slots."""
        self.ticks = np.zeros(slots)  # in which each was edited
        self._sums: dict[str, np.ndarray] = {}
        self._moved: dict[str, np.ndarray] = {}  # ticks with a lower and with a higher donor, (2, slots)
        self._followed: dict[str, np.ndarray] = {}  # those of them in which the option followed
        self._within, self._with_change = np.zeros(slots), np.zeros(slots)

    def add(self, slots: np.ndarray, numbers: Mapping[str, torch.Tensor], donors: Mapping[DonorRule, Donors]) -> None:
        """Count a tick of E edited agents.

        Args:
            slots: of the agents, (E,) int64.
            numbers: what was done at once, (E,) by name; gains in play are compared with the donors.
        """
        self.ticks[slots] += 1
        for name, values in numbers.items():
            self._sums.setdefault(name, np.zeros(len(self.ticks)))[slots] += values.cpu().numpy()
        outcomes = {Outcome.parse(name): values for name, values in numbers.items() if donors}
        gains = {
            outcome.of: values.numpy()
            for outcome, values in outcomes.items()
            if (outcome.measure, outcome.against) == ("gain", "in_play")
        }
        for rule, donor in donors.items():
            side = np.sign(donor.given - donor.own)  # (E,)
            for option, gain in gains.items():
                name = f"{rule.feature}/{option}"
                counted = (np.abs(gain) > _SMALLEST_GAIN) & (side != 0)
                place = (side[counted] > 0).astype(np.int64), slots[counted]
                self._of(self._moved, name)[place] += 1
                self._of(self._followed, name)[place] += np.sign(gain[counted]) == side[counted]

    def add_within(self, slots: np.ndarray, shares: Sequence[np.ndarray]) -> None:
        """Count the share of the change of E agents that lies in the span, (E,) for each edited layer; NaN for none."""
        if not shares:
            return
        known = np.isfinite(shares)  # (layers, E)
        mean = np.where(known, shares, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        self._within[slots] += mean
        self._with_change[slots] += known.any(axis=0)

    def row(self, slot: int) -> dict[str, float]:
        """Return the outcomes of one life by name; those that do not exist for it are left out."""
        ticks = self.ticks[slot]
        outcomes = {name: sums[slot] / ticks for name, sums in self._sums.items()} if ticks else {}
        for name, moved in self._moved.items():
            for side, follows in enumerate(_FOLLOWS):
                if moved[side, slot]:
                    outcomes[Outcome(follows, name).name] = float(self._followed[name][side, slot] / moved[side, slot])
        if self._with_change[slot]:
            outcomes["within_data"] = float(self._within[slot] / self._with_change[slot])
        return outcomes

    def _of(self, counts: dict[str, np.ndarray], name: str) -> np.ndarray:
        return counts.setdefault(name, np.zeros((2, len(self.ticks))))


_NOT_FOLLOWED = -1


class FollowedEdits:
    """How long edits last in one group of episodes: agents that were edited in one tick, beside copies that were not.

    A copy has the memory that the agent would have had without the edit, and from then on gets the observations of the
    edited agent. So the two differ in nothing but what is left of the edit.
    """

    def __init__(self, policy: RecurrentPolicy, slots: int, ticks: int):
        """Follow agents in so many slots for `ticks` ticks after each edit."""
        self._policy, self._ticks = policy, ticks
        self._copies = policy.initial_state(slots)
        self._lag = np.full(slots, _NOT_FOLLOWED)
        self._first: dict[str, np.ndarray] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._count: dict[str, np.ndarray] = {}

    def due(self, slots: np.ndarray) -> np.ndarray:
        """Say which agents are to be edited in a tick, (B,) bool: those that are not followed in it."""
        lag = self._lag[slots]
        return np.asarray((lag == _NOT_FOLLOWED) | (lag == self._ticks))

    def begin(self, slots: np.ndarray, edited: MemoryState, unedited: MemoryState, divergence: np.ndarray) -> None:
        """Begin to follow E agents, after the tick in which they were edited.

        Args:
            slots: of the agents, (E,) int64.
            unedited: the memories that they would have without the edit.
            divergence: of their distributions over actions, with the edit from without, (E,) nats.
        """
        self._lag[slots] = 0
        self._copies.put(torch.from_numpy(slots).to(unedited.hidden.device), unedited)
        apart = _apart(edited, unedited)
        for name, far in apart.items():
            self._first.setdefault(name, np.zeros(len(self._lag)))[slots] = far
        self._add(slots, apart, divergence)

    @torch.no_grad()
    def follow(self, decision: Decision) -> None:
        """Play a tick of the copies of all followed agents, and compare them with the agents' own decision."""
        self._lag[self._lag >= 0] += 1
        self._lag[self._lag > self._ticks] = _NOT_FOLLOWED
        rows = np.flatnonzero(self._lag[decision.present] >= 0)
        if not len(rows):
            return
        slots, device = decision.present[rows], self._copies.hidden.device
        places, chosen = torch.from_numpy(slots).to(device), torch.from_numpy(rows).to(device)
        copies, after = outputs_of(self._policy, decision, torch.from_numpy(rows), self._copies.take(places))
        self._copies.put(places, after)
        divergence = copies.distribution.divergence(decision.distribution.take(chosen)).sum(dim=1)
        self._add(slots, _apart(decision.next_state.take(chosen), after), divergence.cpu().numpy())

    def row(self, slot: int) -> dict[str, Any]:
        """Return what is left after each number of ticks of one life's edits, on average, by name."""
        return {
            Outcome("lasting", f"{name}/{lag}").name: float(self._sums[name][slot, lag] / count)
            for name, counts in self._count.items()
            for lag, count in enumerate(counts[slot])
            if count
        }

    def _add(self, slots: np.ndarray, apart: dict[str, np.ndarray], divergence: np.ndarray) -> None:
        lag = self._lag[slots]
        self._count_in("actions", slots, lag, divergence)
        for name, far in apart.items():
            first = self._first[name][slots]
            moved = first > 0
            self._count_in(name, slots[moved], lag[moved], far[moved] / first[moved])

    def _count_in(self, name: str, slots: np.ndarray, lag: np.ndarray, values: np.ndarray) -> None:
        shape = len(self._lag), self._ticks + 1
        self._sums.setdefault(name, np.zeros(shape))[slots, lag] += values
        self._count.setdefault(name, np.zeros(shape, dtype=np.int64))[slots, lag] += 1


def _apart(one: MemoryState, other: MemoryState) -> dict[str, np.ndarray]:
    """Euclidean distance of two memories of each agent over all layers, (B,) for each kind of state they have."""
    states = {"hidden": one.hidden - other.hidden, "cell": one.cell - other.cell}
    return {
        name: state.double().square().sum(dim=(0, 2)).sqrt().cpu().numpy()
        for name, state in states.items()
        if len(state)
    }


_MOST_OPTIONS_NAMED = 5


@dataclass(frozen=True)
class Outputs:
    """A policy's outputs for B agents."""

    distribution: ActionDistribution
    value: torch.Tensor  # (B,)
    states: Mapping[str, torch.Tensor] = field(default_factory=dict)  # of some layers, (B, units) each

    def take(self, agents: torch.Tensor) -> "Outputs":
        """Return the outputs for the given agents, (A,) int64 without repetitions, in their order."""
        states = {layer: state[agents] for layer, state in self.states.items()}
        return Outputs(self.distribution.take(agents), self.value[agents], states)


def outputs_of(
    policy: RecurrentPolicy, decision: Decision, rows: torch.Tensor, memory: MemoryState, layers: Sequence[str] = ()
) -> tuple[Outputs, MemoryState]:
    """Return what E agents would do in the tick of a decision if they had other memories, and their memories after it.

    Args:
        rows: of the agents among those present, (E,) int64.
        layers: whose states are returned too.
    """
    seen = decision.observation.take(rows).to(memory.hidden.device)
    with capture(policy, layers) as states:
        distribution, value, after = policy(seen, memory)
    return Outputs(distribution, value.cpu(), states), after


def at_once(
    unedited: Outputs, edited: Outputs, against: Comparison, directions: Sequence[Direction] = ()
) -> dict[str, torch.Tensor]:
    """Compare two outputs for the same observations of B agents.

    Args:
        directions: whose read-outs are compared; both outputs need the states of their layers.

    Returns:
        By the name of the outcome, (B,) float64 each: `kl` of each head, the Kullback-Leibler divergence of the edited
        from the unedited distribution in nats, and their sum, since heads are independent; `value_change`; for heads of
        at most five options the `gain` of each, the change of its probability; and by how many of its standard
        deviations a read-out has `moved`. Planned displacements, the read-outs of `train_probes.py --targets future`,
        are reported in tiles as well, as `planned`.
    """
    before, after, heads = unedited.distribution, edited.distribution, unedited.distribution.heads
    divergence = before.divergence(after)  # (B, H)
    changes = {Outcome("kl"): divergence.sum(dim=1)}
    changes |= {Outcome("kl", head.name): divergence[:, place] for place, head in enumerate(heads)}
    for place, head in enumerate(heads):
        if head.size <= _MOST_OPTIONS_NAMED:
            gains = after.log_probabilities_of(place).double().exp() - before.log_probabilities_of(place).double().exp()
            names = OPTIONS.get(head.name, tuple(map(str, range(head.size))))
            changes |= {
                Outcome("gain", f"{head.name}/{name.title()}"): gains[:, option] for option, name in enumerate(names)
            }
    changes[Outcome("value_change")] = (edited.value - unedited.value).double()
    for direction in directions:
        weight = torch.from_numpy(direction.weight).double()
        change = (edited.states[direction.layer] - unedited.states[direction.layer]).double() @ weight  # (B,)
        changes[Outcome("moved", direction.name)] = change / (direction.spread or 1.0)
        if planned_displacement(direction.name):
            changes[Outcome("planned", direction.name)] = change
    return {replace(outcome, against=against).name: values for outcome, values in changes.items()}


class Shadows:
    """What edited agents would do if nobody had ever edited them, in one group of episodes.

    An edit of one tick is still in the memory of the next ones. So an agent's own memory, even before this tick's edit,
    is not that of an unedited agent. A shadow is: it reads every observation of its agent, and no edit ever reaches it.
    An agent has one from the tick in which an edit first changes it to the end of its life. Before, it is its own.
    """

    def __init__(self, policy: RecurrentPolicy, slots: int, layers: Sequence[str]):
        """Prepare for agents in so many slots; `layers` are those whose states are compared."""
        self._policy, self._layers = policy, layers
        self._memory = policy.initial_state(slots)
        self._begun = np.zeros(slots, dtype=bool)
        self._slots = np.zeros(0, dtype=np.int64)  # of the shadows that have read this tick
        self._outputs: Outputs

    def begin(self, slots: np.ndarray, unedited: MemoryState, changed: torch.Tensor) -> None:
        """Begin the shadows of agents that are changed for the first time.

        Args:
            slots: of E agents that are edited in this tick, (E,) int64.
            changed: whether the edit changes anything of them, (E,) bool.
        """
        new = torch.from_numpy(~self._begun[slots]) & changed.cpu()
        device = self._memory.hidden.device
        self._memory.put(torch.from_numpy(slots)[new].to(device), unedited.take(new.to(device)))
        self._begun[slots[new.numpy()]] = True

    @torch.no_grad()
    def read(self, decision: Decision) -> None:
        """Let all shadows read the observations of a tick; `decision` is that of their agents."""
        self._begun &= decision.acting  # other slots have lost their memory
        rows = np.flatnonzero(self._begun[decision.present])
        self._slots = decision.present[rows]
        if not len(rows):
            return
        places = torch.from_numpy(self._slots).to(self._memory.hidden.device)
        mine, seen = self._memory.take(places), torch.from_numpy(rows)
        self._outputs, after = outputs_of(self._policy, decision, seen, mine, self._layers)
        self._memory.put(places, after)

    def compare(self, slots: np.ndarray, edited: Outputs, directions: Sequence[Direction]) -> dict[str, torch.Tensor]:
        """Compare what E agents do in this tick with what their shadows do.

        Args:
            slots: of the agents, ascending, (E,) int64.
            directions: as in `at_once`.

        Returns:
            As `at_once`; exactly 0 for agents that nothing has changed so far.
        """
        mine = np.flatnonzero(self._begun[slots])
        numbers = at_once(edited, edited, "total", directions) if len(mine) < len(slots) else {}
        if len(mine):
            shadows = self._outputs.take(torch.from_numpy(np.searchsorted(self._slots, slots[mine])))
            rows = torch.from_numpy(mine)
            changes = at_once(shadows, edited.take(rows), "total", directions)
            numbers = {name: values.index_copy(0, rows, changes[name]) for name, values in numbers.items()} or changes
        return numbers


def differ(one: MemoryState, other: MemoryState) -> torch.Tensor:
    """Return whether two memories of each of B agents differ at all, (B,) bool."""
    return (one.hidden != other.hidden).any(2).any(0) | (one.cell != other.cell).any(2).any(0)


def donors_behind(count: int, donors: Mapping[DonorRule, Donors]) -> tuple[torch.Tensor, dict[DonorRule, Donors]]:
    """Line donors up behind E edited agents.

    Returns:
        Rows of all donors among the acting agents, (D,), and the donors with their rows among E + D agents instead.
    """
    lined_up, rows = {}, [torch.zeros(0, dtype=torch.int64)]
    behind = count
    for rule, donor in donors.items():
        rows.append(donor.rows)
        lined_up[rule] = replace(donor, rows=torch.arange(behind, behind + len(donor.rows)))
        behind += len(donor.rows)
    return torch.cat(rows), lined_up
