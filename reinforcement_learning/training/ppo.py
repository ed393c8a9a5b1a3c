"""Proximal policy optimisation (Schulman et al. 2017) over segments of lives, and the optimizers that can train."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from agent_zoo.base import RecurrentPolicy, SegmentOutputs
from agent_zoo.data_parallel import ALONE, Processes
from agent_zoo.network_parts.distribution import entropy, log_probability
from agent_zoo.semantic_module import CODEBOOK_SPEED
from common.user_error import UserError
from reinforcement_learning.settings import TrainSettings
from reinforcement_learning.training.rollout import Rollout

OWN_LOSSES = (
    "policy",  # the clipped surrogate objective, negated
    "value",  # half the squared error of the value estimate, clipped
    "entropy",  # summed over heads, in nats
    "approximate_kl",  # between the policy before and after, in nats (Schulman's k3 estimator)
    "clip_fraction",  # share of decisions whose probability ratio was clipped
    "gradient_norm",  # before clipping
)


@dataclass(frozen=True)
class Minibatch:
    """Some segments of a rollout, longest first."""

    rows: torch.Tensor  # of the rollout, with segments concatenated, (N,) int64
    lengths: torch.Tensor  # ticks of each segment, (S,) int64
    segments: torch.Tensor  # of the rollout, (S,) int64


@dataclass(frozen=True)
class NamedLoss:
    """The value of an auxiliary loss on a minibatch."""

    name: str  # in the metrics, `loss/NAME`
    value: torch.Tensor  # scalar, the mean over the minibatch's rows; several processes are averaged by rows
    weight: float = 1.0  # factor of the value in the total loss


AuxiliaryLoss = Callable[[SegmentOutputs, Rollout, Minibatch], NamedLoss]
"""Takes the policy's outputs for a minibatch's rows, in their order, the rollout, and the indices of these rows."""


def update(
    policy: RecurrentPolicy,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    settings: TrainSettings,
    generator: torch.Generator,
    on_minibatch: Callable[[], None],
    processes: Processes = ALONE,
    auxiliary: Sequence[AuxiliaryLoss] = (),
) -> dict[str, float]:
    """Improve the policy on a rollout, in place; return each loss by name, the mean over the minibatches.

    With several processes, each has its own rollout, and every minibatch is the union of theirs: gradients equal those
    of a single process with all the rows.

    Args:
        optimizer: over the parameters of the policy and of auxiliary losses, if any: all their gradients are averaged
            over processes and clipped together.
        generator: randomness of the minibatches, on the CPU.
        on_minibatch: called before each minibatch; may raise to stop.
        processes: of the run; all must call this with equal policies and settings.

    Raises:
        UserError: the loss or its gradient is not finite; the policy is left as it was before that minibatch.
        ValueError: an auxiliary loss has the name of another one or of one of PPO's own.
    """
    steps: list[dict[str, float]] = []
    rollout = rollout.to(next(policy.parameters()).device)  # once: its minibatches are then taken on the device
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for _ in range(settings.update_epochs):
        before = len(steps)
        for minibatch in minibatches(rollout, settings, generator):
            on_minibatch()
            loss, losses = _losses(policy, rollout, minibatch, settings, processes, auxiliary)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            processes.average(parameters, [loss.detach(), *losses.values()], weight=len(minibatch.rows))
            norm = torch.nn.utils.clip_grad_norm_(parameters, settings.max_gradient_norm)
            step = {name: value.item() for name, value in losses.items()}
            if not torch.isfinite(loss + norm):
                raise UserError(
                    f"training stopped: loss {loss.item()} or gradient norm {norm.item()} is not a finite number "
                    f"({step}); the last checkpoint is good, try a lower --train.learning-rate"
                )
            optimizer.step()
            steps.append({**step, "gradient_norm": norm.item()})
        divergence = np.mean([step["approximate_kl"] for step in steps[before:]])
        if settings.target_kl is not None and divergence > settings.target_kl:
            break  # no pass follows one whose minibatches diverged so far from the old policy
    return {name: float(np.mean([step[name] for step in steps])) for name in dict.fromkeys((*OWN_LOSSES, *steps[0]))}


def minibatches(rollout: Rollout, settings: TrainSettings, generator: torch.Generator) -> Iterator[Minibatch]:
    """Split all segments of a rollout, shuffled, into minibatches of about `minibatch_rows` full segments each.

    Their number depends only on the settings, so that several processes can step through theirs together. None is
    empty, since a batch has at least as many segments as if all were full.
    """
    count = max(1, settings.batch_size // (settings.minibatch_rows * settings.bptt_horizon))
    starts = torch.cumsum(rollout.lengths, 0) - rollout.lengths
    for segments in torch.randperm(len(rollout.lengths), generator=generator).tensor_split(count):
        longest_first = segments[torch.argsort(rollout.lengths[segments], descending=True, stable=True)]
        lengths = rollout.lengths[longest_first]
        shift = starts[longest_first] - (torch.cumsum(lengths, 0) - lengths)
        positions = torch.repeat_interleave(shift, lengths) + torch.arange(int(lengths.sum()))
        yield Minibatch(rollout.order[positions], lengths, longest_first)


def _value_errors(
    value: torch.Tensor, old_value: torch.Tensor, returns: torch.Tensor, settings: TrainSettings
) -> torch.Tensor:
    """Squared errors of the value estimate, (N,); if clipped, at least those of the nearest estimate in range."""
    errors = (value - returns) ** 2
    if not settings.clip_value:
        return errors
    near_old = old_value + (value - old_value).clamp(-settings.value_clip, settings.value_clip)
    return torch.max(errors, (near_old - returns) ** 2)


def _losses(
    policy: RecurrentPolicy, rollout: Rollout, minibatch: Minibatch, settings: TrainSettings, processes: Processes,
    auxiliary: Sequence[AuxiliaryLoss],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:  # fmt: skip
    """Return the loss to minimise, and scalars to report; all are means over this process's rows."""
    device = rollout.value.device
    rows, segments = minibatch.rows.to(device), minibatch.segments.to(device)
    old_log_probability, old_value, advantage = (
        column[rows] for column in (rollout.log_probability, rollout.value, rollout.advantage)
    )
    returns = advantage + old_value
    outputs = policy.forward_segments(rollout.observation.take(rows), minibatch.lengths, rollout.state.take(segments))
    distribution, value = outputs.distribution, outputs.value
    new_log_probability = log_probability(distribution, rollout.action[rows], settings.ignore_idle_heads)
    if settings.normalize_advantage:
        everyones = processes.concatenate(advantage)
        advantage = (advantage - everyones.mean()) / (everyones.std(correction=0) + 1e-8)
    log_ratio = new_log_probability - old_log_probability
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - settings.clip_coefficient, 1 + settings.clip_coefficient)
    policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
    value_loss = 0.5 * _value_errors(value, old_value, returns, settings).mean()
    mean_entropy = entropy(distribution, settings.ignore_idle_heads).mean()
    loss = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * mean_entropy
    with torch.no_grad():
        outside = (ratio - 1).abs() > settings.clip_coefficient
        losses = {
            "policy": policy_loss.detach(),
            "value": value_loss.detach(),
            "entropy": mean_entropy.detach(),
            "approximate_kl": ((ratio - 1) - log_ratio).mean(),
            "clip_fraction": outside.float().mean(),
        }
    for extra in (auxiliary_loss(outputs, rollout, minibatch) for auxiliary_loss in auxiliary):
        if extra.name in losses or extra.name in OWN_LOSSES:
            raise ValueError(f"two losses are named {extra.name}: give the auxiliary loss another name")
        losses[extra.name] = extra.value.detach()
        loss = loss + extra.weight * extra.value
    return loss, losses


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
    return [
        parameter
        for name, parameter in policy.named_parameters()
        # The leaks of moving averages, a row for each layer, are no weights either.
        if parameter.ndim == 2 and "weight" in name and id(parameter) not in left_out
    ]
