"""Lives of a planted intervention run: what every edit does, and to whom, is known."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from activation_store.directions import Direction, Source
from activation_store.interventions import KEYS, Arm, ArmKind, LivesTable, Outcome

EDIT, UNTRAINED, NO_EDIT = "edit", "untrained", "no edit"
RANDOM: ArmKind = "random direction"
SAME: ArmKind = "same variance"

TWIN = Arm("unedited", "unedited", "trained", None, "unedited")
UNTRAINED_TWIN = Arm("untrained, unedited", "unedited", "untrained", None, "untrained, unedited")

_MEAN_AND_SPREAD = {
    "ticks": (120, 40), "reward": (8, 3), "task_progress": (0.4, 0.15), "meals": (2, 0.8), "drinks": (3, 1),
    "towards_food": (0.5, 0.1), "damage_dealt": (5, 4), "damage_taken": (6, 4),
}  # fmt: skip
_DEATHS = {"starved": 0.4, "dehydrated": 0.3, "killed_by_player": 0.2}
_HEADS = {"Move": 0.08, "Attack target": 0.03, "Attack style": 0.01, "Use item": 0.02}
_OPTIONS = ("North", "South", "East", "West", "Stay")


@dataclass(frozen=True)
class Planted:
    """What to plant."""

    per_dose: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Shift of an outcome's mean in lives that are edited, per unit of dose, by kind of arm."""
    spilled: Mapping[str, float] = field(default_factory=dict)
    """Shift of an outcome's mean in unedited lives of edit arms, per unit of dose."""
    doses: tuple[float | None, ...] = (1.0,)  # of the edit and its controls
    kinds: tuple[str, ...] = (RANDOM, SAME, UNTRAINED, NO_EDIT)  # which controls are played
    randoms: int = 5  # number of random directions of each kind, at each dose
    spread: float = 0.0
    """Standard deviation, between edited and random directions alike, of what each does to every outcome in edited
    lives, in spreads of the outcome."""
    episodes: int = 8
    agents: int = 16
    edited: int = 8
    disturbed: tuple[float, float] = (0.6, 0.15)
    """Spread of what any edit does to edited and to unedited lives, in spreads of the outcome."""
    shared: float = 0.0
    """Spread of what an edit does to all edited lives of an episode alike, in spreads of the outcome."""
    directions: Mapping[str | None, float] = field(default_factory=lambda: {None: 1.0})
    """How strong the edit of each is, if they are edited one by one; the doses are multiplied by it."""
    in_play: Mapping[str | None, float] = field(default_factory=dict)
    """Changes at once in play as a share of those in total, by direction; half where it is not given."""

    def arms(self) -> list[Arm]:
        arms = [TWIN]
        if UNTRAINED in self.kinds:
            arms.append(UNTRAINED_TWIN)
        if NO_EDIT in self.kinds:
            arms.append(Arm("no edit", "no edit", "trained", None, TWIN.name))
        for dose, direction in itertools.product(self.doses, self.directions):
            output = ("" if dose is None else f", dose {dose:+g}") + (f", {direction}" if direction else "")
            arms.append(Arm(f"steer is_starving{output}", "edit", "trained", dose, TWIN.name, direction))
            arms += [
                Arm(f"{kind} {place + 1}{output}", kind, "trained", dose, TWIN.name, direction)
                for kind in (RANDOM, SAME) if kind in self.kinds
                for place in range(self.randoms)
            ]  # fmt: skip
            if UNTRAINED in self.kinds:
                arms.append(Arm(f"untrained, steer{output}", "edit", "untrained", dose, UNTRAINED_TWIN.name, direction))
        return arms


def plant(planted: Planted, seed: int = 0) -> tuple[LivesTable, list[Arm]]:
    """Return the lives of a planted run, and its arms."""
    rng = np.random.default_rng(seed)
    lives = planted.episodes * planted.agents
    drawn = np.concatenate([rng.permutation(planted.agents) < planted.edited for _ in range(planted.episodes)])
    twins = {policy: _unedited(lives, rng) for policy in ("trained", "untrained")}
    arms = planted.arms()
    rows: dict[str, list[np.ndarray]] = {}
    for arm in arms:
        outcomes = dict(twins[arm.policy])
        if arm.kind not in ("unedited", "no edit"):
            outcomes = _changed(outcomes, arm, planted, drawn, rng)
        outcomes |= _at_once(arm, planted, drawn, rng)
        for name, values in outcomes.items():
            rows.setdefault(name, []).append(values)
    table = LivesTable(
        arm=np.repeat([arm.name for arm in arms], lives),
        episode=np.tile(np.repeat(np.arange(planted.episodes), planted.agents), len(arms)),
        agent=np.tile(np.arange(1, planted.agents + 1), planted.episodes * len(arms)),
        edited=np.tile(drawn, len(arms)),
        outcomes={name: np.concatenate(values) for name, values in rows.items()},
    )
    return table, arms


def joined(tables: Sequence[LivesTable]) -> LivesTable:
    """The lives of all tables, with the outcomes of the first."""
    keys = {key: np.concatenate([getattr(table, key) for table in tables]) for key in KEYS}
    names = tables[0].outcomes
    return LivesTable(
        **keys, outcomes={name: np.concatenate([table.outcomes[name] for table in tables]) for name in names}
    )


def kind_of(arm: Arm) -> str:
    return UNTRAINED if arm.policy == "untrained" else arm.kind


def _strength(arm: Arm, planted: Planted) -> float:
    return (1.0 if arm.dose is None else arm.dose) * planted.directions.get(arm.direction, 1.0)


def _unedited(lives: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    outcomes = {name: rng.normal(mean, spread, lives) for name, (mean, spread) in _MEAN_AND_SPREAD.items()}
    cause = rng.random(lives)
    end = 0.0
    for name, share in _DEATHS.items():
        outcomes[f"died_of/{name}"] = ((cause >= end) & (cause < end + share)).astype(float)
        end += share
    return outcomes


def _changed(
    twin: dict[str, np.ndarray], arm: Arm, planted: Planted, drawn: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    dose = _strength(arm, planted)
    shifts = planted.per_dose.get(kind_of(arm), {})
    spilled = planted.spilled if kind_of(arm) == EDIT else {}
    changed = {}
    for name, values in twin.items():
        shift = np.where(drawn, shifts.get(name, 0.0), spilled.get(name, 0.0)) * dose
        if name.startswith("died_of/"):  # some lives end in another way; a shift turns as many as it says
            flipped = rng.random(len(values)) < np.where(drawn, planted.disturbed[0], planted.disturbed[1]) / 3
            redrawn = (rng.random(len(values)) < _DEATHS[name.removeprefix("died_of/")]).astype(float)
            changed[name] = np.where(flipped, redrawn, values)
            changed[name] = np.where(rng.random(len(values)) < shift, 1.0, changed[name])
        else:
            spread = _MEAN_AND_SPREAD[name][1]
            noise = rng.normal(0, np.where(drawn, *planted.disturbed) * spread)
            own = drawn * rng.normal(0, planted.spread * spread) if arm.policy == "trained" else 0.0
            together = np.repeat(rng.normal(0, planted.shared * spread, planted.episodes), planted.agents)
            changed[name] = values + shift + noise + own + drawn * together
    return changed


def _at_once(arm: Arm, planted: Planted, drawn: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    strengths = {NO_EDIT: 0.0, EDIT: 1.0, RANDOM: 0.15, SAME: 0.3, UNTRAINED: 0.2}
    strength = np.nan if arm.kind == "unedited" else strengths[kind_of(arm)]
    dose = _strength(arm, planted)

    def about(mean: float, spread: float) -> np.ndarray:
        return np.where(drawn, strength * (mean + spread * rng.normal(size=len(drawn))), np.nan)

    heads = {f"kl/{head}": np.abs(about(kl * dose**2, kl / 3)) for head, kl in _HEADS.items()}
    gains = {f"gain/Move/{option}": about((place - 2) * 0.03 * dose, 0.02) for place, option in enumerate(_OPTIONS)}
    total = {
        **heads, "kl": np.asarray(sum(heads.values())), "value_change": about(-0.4 * dose, 0.1), **gains,
        "moved/is_in_combat": about(0.3 * dose, 0.1),
    }  # fmt: skip
    kept = planted.in_play.get(arm.direction, 0.5)
    return {
        **{replace(Outcome.parse(name), against="total").name: values for name, values in total.items()},
        **{replace(Outcome.parse(name), against="in_play").name: kept * values for name, values in total.items()},
        "off_manifold": 1 + np.abs(about(0.3 * abs(dose), 0.1)),
        "edited_ticks": np.where(drawn & (arm.kind != "unedited"), 50.0, np.nan),
    }


FOLLOWED_TICKS = 8


def with_followed(table: LivesTable, arms: list[Arm], rate: float) -> tuple[LivesTable, list[Arm]]:
    """Add an arm whose edits leave `rate` of themselves in the cell from tick to tick, with noise in each life."""
    once = Arm("edited once", "edited once", "trained", 1.0, TWIN.name)
    rng = np.random.default_rng(0)
    twin = table.of_arm(TWIN.name)
    both = joined([table, replace(twin, arm=np.full(len(twin), once.name))])
    outcomes = dict(both.outcomes)
    for lag in range(FOLLOWED_TICKS + 1):
        left = np.where(twin.edited, rate**lag * rng.normal(1, 0.1 * (lag > 0), len(twin)), np.nan)
        outcomes[f"lasting/cell/{lag}"] = np.concatenate([np.full(len(table), np.nan), left])
    return replace(both, outcomes=outcomes), [*arms, once]


def direction(weight: Sequence[float], name: str = "one", layer: str = "lstm_hidden", **given: float) -> Direction:
    """A direction with this weight; its read-out has the mean 0 and the spread 1 unless given."""
    about = {"bias": 0.0, "mean": 0.0, "spread": 1.0} | given
    return Direction(
        name, layer, np.array(weight, dtype=np.float32), about["bias"], "units", about["mean"], about["spread"],
        records=100, lives=10, episodes=2, source=Source("probe", "run", "dump", "policy", None),
    )  # fmt: skip


def unit(place: int, units: int, name: str = "one", layer: str = "lstm_hidden", **given: float) -> Direction:
    """The direction of one unit."""
    return direction(np.eye(units)[place].tolist(), name, layer, **given)
