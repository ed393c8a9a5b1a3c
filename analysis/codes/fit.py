"""Fit a semantic plane and a codebook to stored states of a policy, with the losses of joint training."""

import numpy as np
import torch

from activation_store.reader import Progress
from agent_zoo.agent_settings import BETA, PAIRWISE_WEIGHT, SemanticShape
from agent_zoo.semantic_module import (
    ALPHA,
    CODEBOOK_SPEED,
    SemanticModule,
    log_similarities,
    perplexity,
    quantisation_loss,
    restart_dead_codes,
)
from analysis.clusters.summary import CodeUse
from analysis.lives import Lives
from analysis.runs.codebook_rule import CodebookRule

LEARNING_RATE = 1e-3
TICKS_APART = 10
MEAN_SQUARED_DISTANCE = 2 * ALPHA
"""States are divided by one number so that this is theirs, whatever the layer: about that of trained hidden states."""
_RESTART_EVERY = 50
_LAST_RESTART = 0.8
_PLACED_ANEW = (0.5, 0.75)
"""Shares of the steps after which codes are placed anew by K-means: a code between two groups of states, while two
codes share another group, would otherwise stay there."""
_MOST_COUNTED = 8192
_STARTS = 10


def fit_codebook(
    activations: np.ndarray, lives: Lives, tick: np.ndarray, seed: int, progress: Progress = lambda share: None, *,
    codes: int, steps: int, states: int, plane_dimensions: int = 2, pairwise_weight: float = PAIRWISE_WEIGHT,
    beta: float = BETA,
) -> tuple[CodebookRule, CodeUse]:  # fmt: skip
    """Fit a plane and a codebook; the codes in use come largest first, and losses are means over the last tenth.

    Args:
        activations: (B, U) float32, not all the same.
        tick: of the records, (B,).
        codes: what follows is as in `options.FitSettings`.
    """
    random = np.random.default_rng([seed, 11])
    centre = activations.mean(axis=0, dtype=np.float64).astype(np.float32)
    # The mean squared distance of two records becomes `MEAN_SQUARED_DISTANCE`.
    variance = float(activations.var(axis=0, dtype=np.float64).sum())
    scale = float(np.sqrt(2 * variance / MEAN_SQUARED_DISTANCE))
    scaled = torch.from_numpy((activations - centre) / scale)  # (B, U)
    spaced = _Spacing(lives, tick)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = SemanticModule(scaled.shape[1], SemanticShape(codes, plane_dimensions))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(
        [
            {"params": list(module.to_plane.parameters()), "speed": 1.0},
            {"params": [module.codebook], "speed": CODEBOOK_SPEED},
        ],
        lr=LEARNING_RATE,
    )
    history = []
    anew = {int(share * steps) for share in _PLACED_ANEW}
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * group["speed"] * (1 - step / steps)
        sample = scaled[torch.from_numpy(spaced.draw(states, random))]
        with torch.no_grad():
            alike = log_similarities(sample).exp()  # states are given, so one side of the loss is constant
        plane = module.plane(sample)
        pairwise = -(alike * log_similarities(plane)).sum() / (len(sample) * states)
        quantisation = quantisation_loss(plane, module.codebook, beta)
        optimizer.zero_grad(set_to_none=True)
        (pairwise_weight * pairwise + quantisation).backward()
        optimizer.step()
        history.append((pairwise.item(), quantisation.item()))
        if step in anew:
            _place_codes(module, optimizer, scaled, random)
        elif step % _RESTART_EVERY == _RESTART_EVERY - 1 and step < _LAST_RESTART * steps:
            with torch.no_grad():
                moved = restart_dead_codes(module.codebook, module.plane(_counted(scaled, random)), generator)
                for name in ("exp_avg", "exp_avg_sq"):
                    optimizer.state[module.codebook][name][moved] = 0
        progress((step + 1) / steps)
    last = np.mean(history[-max(1, steps // 10) :], axis=0)
    return _codebook(module, scaled, centre, scale, float(last[0]), float(last[1]))


class _Spacing:
    """Draws records of which those of a life are at least `TICKS_APART` ticks apart."""

    def __init__(self, lives: Lives, tick: np.ndarray):
        self.lives = lives
        self.window = tick // TICKS_APART  # two records of a life in every other window are far enough apart

    def draw(self, most: int, random: np.random.Generator) -> np.ndarray:
        """Return the indices of at most `most` records, in random order."""
        count = len(self.window)
        drawn = random.permutation(count) if count <= 4 * most else random.choice(count, 4 * most, replace=False)
        even = drawn[self.window[drawn] % 2 == random.integers(2)]
        if not len(even):
            even = drawn
        _, first = np.unique(self.lives.index[even] * (self.window.max() + 1) + self.window[even], return_index=True)
        return np.asarray(random.permutation(even[first])[:most])


@torch.no_grad()
def _place_codes(
    module: SemanticModule, optimizer: torch.optim.Optimizer, states: torch.Tensor, random: np.random.Generator
) -> None:
    from sklearn.cluster import KMeans

    plane = module.plane(_counted(states, random)).numpy().astype(np.float64)
    number = min(len(module.codebook), len(np.unique(plane, axis=0)))
    model = KMeans(number, n_init=_STARTS, random_state=int(random.integers(2**31))).fit(plane)
    module.codebook[:number] = torch.from_numpy(model.cluster_centers_).to(module.codebook.dtype)
    for name in ("exp_avg", "exp_avg_sq"):
        optimizer.state[module.codebook][name].zero_()


def _counted(states: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    if len(states) <= _MOST_COUNTED:
        return states
    return states[torch.from_numpy(random.choice(len(states), _MOST_COUNTED, replace=False))]


@torch.no_grad()
def _codebook(
    module: SemanticModule, states: torch.Tensor, centre: np.ndarray, scale: float, pairwise: float, quantisation: float
) -> tuple[CodebookRule, CodeUse]:
    """Write the two linear maps as one of the activations themselves, and order codes by size."""
    origin = module.plane(torch.zeros(1, states.shape[1]))
    weight = (module.plane(torch.eye(states.shape[1])) - origin).double().numpy() / scale  # (U, D)
    bias = origin[0].double().numpy() - centre.astype(np.float64) @ weight
    counts = torch.bincount(module.nearest(module.plane(states)), minlength=len(module.codebook))
    used = [code for code in torch.argsort(counts, descending=True, stable=True).tolist() if counts[code]]
    numbers = tuple(range(len(used)))
    places = module.codebook[used].numpy().copy()
    rule = CodebookRule(weight.astype(np.float32), bias.astype(np.float32), places, np.arange(len(used)))
    use = CodeUse(len(counts), len(used), perplexity(counts), False, numbers, pairwise, quantisation)
    return rule, use
