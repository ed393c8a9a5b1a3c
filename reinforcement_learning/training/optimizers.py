"""The optimizers that can train a policy."""

from typing import Any

import torch
from torch import nn

from agent_zoo.base import RecurrentPolicy
from agent_zoo.semantic.losses import CODEBOOK_SPEED
from reinforcement_learning.settings import TrainSettings


class AdamAndMuon(torch.optim.Optimizer):
    """Adam for some parameters and Muon for the others, as one optimizer."""

    def __init__(self, adam: torch.optim.Adam, muon: torch.optim.Muon):
        super().__init__([*adam.param_groups, *muon.param_groups], {})
        self._parts = (adam, muon)
        self._share()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change all parameters along their gradients."""
        for part in self._parts:
            part.step(closure)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another `AdamAndMuon` of the same parameters."""
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        """Let the parts use the groups and the state that are saved, restored and changed here."""
        start = 0
        for part in self._parts:
            part.state = self.state
            part.param_groups = self.param_groups[start : start + len(part.param_groups)]
            start += len(part.param_groups)


def make_optimizer(policy: RecurrentPolicy, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return the optimizer of a policy's parameters; a codebook learns faster.

    Adam takes a single operator for each step (Kingma and Ba 2015). Muon (Jordan et al. 2024) makes the step of each
    weight matrix between hidden units orthogonal; its learning rate is scaled to steps as large as Adam's (Liu et al.
    2025, arXiv:2502.16982). Adam trains all else: embeddings, convolutions, biases, the action heads and the critic.
    """
    matrices = hidden_matrices(policy) if settings.optimizer == "muon" else []
    chosen = {id(matrix) for matrix in matrices}
    rest = [parameter for parameter in policy.parameters() if id(parameter) not in chosen]
    groups = [{"params": rest, "speed": 1.0}]
    if policy.semantic:
        codebook = policy.semantic.codebook
        rest = [parameter for parameter in rest if parameter is not codebook]
        groups = [{"params": rest, "speed": 1.0}, {"params": [codebook], "speed": CODEBOOK_SPEED}]
    optimizer: torch.optim.Optimizer = torch.optim.Adam(groups, lr=settings.learning_rate, eps=1e-5, fused=True)
    if matrices:
        assert isinstance(optimizer, torch.optim.Adam)
        muon = torch.optim.Muon(
            [{"params": matrices, "speed": 1.0}],
            lr=settings.learning_rate,
            weight_decay=0.0,
            adjust_lr_fn="match_rms_adamw",
        )
        optimizer = AdamAndMuon(optimizer, muon)
    set_learning_rate(optimizer, settings.learning_rate)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the network's learning rate, and that of a codebook in proportion."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["speed"]


def hidden_matrices(policy: RecurrentPolicy) -> list[nn.Parameter]:
    """Return the weight matrices of linear layers and of the memory, without those that the actions and values use."""
    others: list[nn.Module] = [policy.policy.action_decoder, policy.policy.critic]
    others += [part for part in policy.modules() if isinstance(part, nn.Embedding)]
    others += [policy.semantic] if policy.semantic else []
    left_out = {id(parameter) for part in others for parameter in part.parameters()}
    return [parameter for parameter in policy.parameters() if parameter.ndim == 2 and id(parameter) not in left_out]
