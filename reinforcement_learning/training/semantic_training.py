"""Shape a policy's semantic plane and codebook while PPO trains it.

The loss is PPO + w (500 L_FDR + L_VQ). The weight w follows the return: it starts at 0 and is clamped to 0 and 1.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch

from agent_zoo.base import RecurrentPolicy, SegmentOutputs
from agent_zoo.data_parallel import Processes
from agent_zoo.semantic_module import SemanticModule, pairwise_loss, perplexity, quantisation_loss, restart_dead_codes
from reinforcement_learning.game.life import Life
from reinforcement_learning.settings import SemanticSettings
from reinforcement_learning.training.ppo import AuxiliaryLoss, Minibatch, NamedLoss
from reinforcement_learning.training.rollout import Rollout

LIVES_REMEMBERED = 1000
"""The mean return follows the lives that ended with this time constant, in lives."""


MINIBATCHES_COUNTED = 32
"""Codes are dead if they are not used in the latest minibatches of an update."""


class SemanticTraining:
    """The auxiliary losses of a policy with a codebook, their weight, and the restart of dead codes.

    Attributes:
        mean_return: of the lives so far, the latest counting most; 0 at the start, and part of the training state.
    """

    def __init__(
        self, policy: RecurrentPolicy, settings: SemanticSettings, seed: int, generator: torch.Generator,
        processes: Processes,
    ):  # fmt: skip
        """Train the codebook of the given policy.

        Args:
            seed: of the run; decides where dead codes are moved to.
            generator: draws states for the pairwise loss, on the CPU; part of the training state.
        """
        assert policy.semantic is not None
        self.module: SemanticModule = policy.semantic
        self.settings = settings
        self.seed = seed
        self.generator = generator
        self.processes = processes
        self.mean_return = 0.0
        self._latest: deque[torch.Tensor] = deque(maxlen=MINIBATCHES_COUNTED)  # hidden states, (n, units) each

    @property
    def weight(self) -> float:
        """Weight of the semantic losses, 0 to 1."""
        return min(1.0, max(0.0, self.mean_return / self.settings.return_reference))

    @property
    def losses(self) -> tuple[AuxiliaryLoss, AuxiliaryLoss]:
        """The pairwise and the quantisation loss, for `ppo.update`."""
        return self._pairwise, self._quantisation

    def after_update(self, lives: Sequence[Life], optimizer: torch.optim.Optimizer, updates: int) -> dict[str, float]:
        """Restart dead codes, let the weight follow the return of all processes' lives, and return metrics."""
        weight, moved = self.weight, torch.zeros(0, dtype=torch.int64)
        with torch.no_grad():
            latest = torch.cat(list(self._latest))
            plane = self.processes.concatenate(self.module.plane(latest))  # (states of all processes, dimensions)
            counts = torch.bincount(self.module.nearest(plane), minlength=self.module.shape.codes)
            if weight:  # without weight nothing would keep a code where it is put
                entropy = np.random.SeedSequence((self.seed, updates)).generate_state(1)[0]
                generator = torch.Generator().manual_seed(int(entropy))
                moved = restart_dead_codes(self.module.codebook, plane, generator)
                remembered = optimizer.state[self.module.codebook]  # it forgets the moments of codes that move
                for moment in {"exp_avg", "exp_avg_sq"} & remembered.keys():
                    remembered[moment][moved.to(self.module.codebook.device)] = 0
        self._latest.clear()
        if lives:
            kept = np.exp(-len(lives) / LIVES_REMEMBERED)
            theirs = np.mean([life.total_reward for life in lives])
            self.mean_return = float(kept * self.mean_return + (1 - kept) * theirs)
        return {
            "semantic/weight": weight,
            "semantic/mean_return": self.mean_return,
            "semantic/perplexity": perplexity(counts),
            "semantic/restarted_codes": float(len(moved)),
        }

    def state(self) -> dict[str, torch.Tensor]:
        """Return what changes during training and is in neither the policy nor its optimizer."""
        return {"mean_return": torch.tensor(self.mean_return, dtype=torch.float64)}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Go on from what `state` returned (KeyError: it is missing)."""
        self.mean_return = float(state["mean_return"])

    def _quantisation(self, outputs: SegmentOutputs, rollout: Rollout, minibatch: Minibatch) -> NamedLoss:
        plane = self.module.plane(outputs.hidden)
        loss = quantisation_loss(plane, self.module.codebook, self.settings.beta)
        return NamedLoss("semantic_quantisation", loss, self.weight)

    def _pairwise(self, outputs: SegmentOutputs, rollout: Rollout, minibatch: Minibatch) -> NamedLoss:
        assert rollout.spaced is not None
        (spaced,) = rollout.spaced[minibatch.rows].nonzero(as_tuple=True)
        most = self.settings.states // self.processes.size
        if len(spaced) > most:
            spaced = spaced[torch.randperm(len(spaced), generator=self.generator)[:most]]
        own = outputs.hidden[spaced.to(outputs.hidden.device)]  # (n, units)
        self._latest.append(own.detach())
        features, plane = self._everyones(own), self._everyones(self.module.plane(own))
        if len(features) < 2:
            return NamedLoss("semantic_pairwise", 0 * outputs.hidden.sum(), 0.0)
        loss = pairwise_loss(features, plane, states=self.settings.states)
        rows = len(minibatch.rows)
        # Each process differentiates the loss of all states by its own, and PPO averages gradients by rows.
        factor = self.processes.total(rows) / rows
        loss = loss.detach() + factor * (loss - loss.detach())
        return NamedLoss("semantic_pairwise", loss, self.weight * self.settings.pairwise_weight)

    def _everyones(self, own: torch.Tensor) -> torch.Tensor:
        """Join the rows of all processes; gradients flow to this process's only."""
        joined = self.processes.concatenate(own.detach())
        counts = self.processes.concatenate(torch.tensor([len(own)]))
        start = int(counts[: self.processes.rank].sum())
        return torch.cat([joined[:start], own, joined[start + len(own) :]])
