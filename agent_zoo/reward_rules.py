"""Weights of rewards beyond the task, and restrictions; without torch, so that options are checked early."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RewardRules:
    """What an agent is paid beyond its task, and what it may not do."""

    heal: float = 0  # for a tick that restored health
    explore: float = 0  # for each event of a kind that is new to the life, and each kill and sale; at most 3 a tick
    hp: float = 0  # for each point of health gained; negative for each lost
    experience: float = 0  # for each point by which the largest experience of all skills grew
    defence: float = 0  # for each 15 points of the mean defence over the three styles, in every tick
    attack: float = 0  # for each point of damage inflicted
    gold: float = 0  # for each coin gained; negative for each lost
    scale: float = 1  # of the sum of `hp` to `gold`
    disable_give: bool = False  # whether giving items or gold is illegal
    spare_dangerous_npcs: bool = False  # whether attacking NPCs that fight back is illegal
    as_published: bool = True
    """False for the rules of this toolkit's older policies: kills and sales pay only if they are new, `experience` pays
    for the skill that gained most, `defence` for changes of the mean defence; and an agent may name the prices of gifts
    that it cannot give."""

    @property
    def pay_for_condition(self) -> bool:
        """Whether anything is paid for the agent's condition: `hp` to `gold`."""
        return any((self.hp, self.experience, self.defence, self.attack, self.gold))
