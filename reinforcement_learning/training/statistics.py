"""Statistics of the lives that ended, under their names in metrics.jsonl."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from reinforcement_learning.game.life import CAUSES_OF_DEATH, EVENTS, FOG, Life


def life_statistics(lives: Sequence[Life]) -> dict[str, float]:
    """Summarise the lives that ended, with equal weight per life.

    Returns:
        Nothing if no life ended, otherwise

        - `lives/ended`: their number;
        - `lives/ticks`, `lives/ticks_median`, `lives/ticks_lower_quartile`, `lives/ticks_upper_quartile`: their
          length, in ticks;
        - `lives/total_reward`: mean sum of rewards of a life;
        - `lives/task_progress`: mean of each life's best progress in its task, 0 to 1;
        - `lives/task_completed`: share that reached 1;
        - `lives/died`: share that died, rather than being alive when their episode ended;
        - `lives/level`, `lives/gold`, `lives/players_killed`, `lives/noops_permitted`: means per life (see `Life`);
        - `events/<KIND>`: mean count per life; kinds have the game's names;
        - if any died, `death/<cause>`: share of deaths; these sum to 1. `death/fog` is there only if any died of it.
    """
    if not lives:
        return {}
    ticks = np.array([life.ticks for life in lives])  # (L,)
    lower, median, upper = np.quantile(ticks, (0.25, 0.5, 0.75))
    events: Counter[str] = Counter()
    for life in lives:
        events.update(life.events)
    return {
        "lives/ended": len(lives),
        "lives/ticks": float(ticks.mean()),
        "lives/ticks_median": float(median),
        "lives/ticks_lower_quartile": float(lower),
        "lives/ticks_upper_quartile": float(upper),
        **{f"lives/{name}": float(np.mean([getattr(life, name) for life in lives])) for name in _AVERAGED},
        **{f"events/{kind}": events[kind] / len(lives) for kind in EVENTS.values()},
        **_shares_of_deaths(lives),
    }


_AVERAGED = (
    "total_reward", "task_progress", "task_completed", "died", "level", "gold", "players_killed", "noops_permitted",
)  # fmt: skip


def _shares_of_deaths(lives: Sequence[Life]) -> dict[str, float]:
    causes = Counter(life.cause_of_death for life in lives if life.died)
    kinds = (*CAUSES_OF_DEATH, *([FOG] if FOG in causes else []))
    return {f"death/{cause}": causes[cause] / causes.total() for cause in kinds} if causes else {}
