"""Find the open choices in the heads whose options are table rows, before anything is scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from agent_zoo.observation import ActionHead, PackedRows


@dataclass(frozen=True)
class LegalRows:
    """Q choices with more than one legal option in heads whose options are rows of one table; P legal rows in all."""

    agent: torch.Tensor  # index of the agent, (Q,) int64, ordered by head
    counts: list[int]  # choices of each head
    noop: torch.Tensor  # the environment's number of each choice's no-op, (Q,) int64
    noop_legal: torch.Tensor  # (Q,) bool
    choice: torch.Tensor  # the choice that each legal row belongs to, (P,) int64, ascending
    row: torch.Tensor  # position of each legal row in the table's values, (P,) int64
    option: torch.Tensor  # the environment's number of each legal row, (P,) int64
    only: list[torch.Tensor]  # for each head, the only legal option of agents without a choice, (B,) int64

    @property
    def place(self) -> torch.Tensor:
        """Position of each legal row among those of its choice, (P,) int64."""
        rows = torch.bincount(self.choice, minlength=len(self.agent))
        first = torch.cumsum(rows, 0) - rows
        return torch.arange(len(self.choice), device=self.choice.device) - first[self.choice]


def legal_rows(heads: Sequence[ActionHead], legal: Mapping[str, torch.Tensor], rows: PackedRows) -> LegalRows:
    """Find the open choices of the heads whose options are rows of one table.

    Args:
        heads: whose options are rows of the table.
        legal: head name -> (B, size) bool.
        rows: the table; options beyond an agent's rows are illegal.
    """
    most, starts = rows.most, rows.starts
    agents, noops, noops_legal, choices, positions, options, only = [], [], [], [], [], [], []
    before = 0
    for head in heads:
        noop = head.size - 1
        allowed = torch.cat([legal[head.name][:, :most], legal[head.name][:, noop:]], dim=1)  # (B, most + 1)
        first = allowed.to(torch.uint8).argmax(dim=1)
        only.append(torch.where(first == most, noop, first))
        (agent,) = (allowed.sum(dim=1) > 1).nonzero(as_tuple=True)
        choice, option = allowed[agent, :most].nonzero(as_tuple=True)
        agents.append(agent)
        noops.append(torch.full_like(agent, noop))
        noops_legal.append(allowed[agent, most])
        choices.append(choice + before)
        positions.append(starts[agent[choice]] + option)
        options.append(option)
        before += len(agent)
    return LegalRows(
        agent=torch.cat(agents),
        counts=[len(agent) for agent in agents],
        noop=torch.cat(noops),
        noop_legal=torch.cat(noops_legal),
        choice=torch.cat(choices),
        row=torch.cat(positions),
        option=torch.cat(options),
        only=only,
    )
