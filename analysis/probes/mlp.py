"""Non-linear probes: small networks for all targets of an input, one for each weight decay to choose from."""

import numpy as np
import torch
from torch import nn

from analysis.matrix_products import fast_products
from analysis.probes.inputs import Columns
from analysis.probes.ridge import standardising

_HIDDEN = 128
_BATCH = 1024
_LEARNING_RATE = 2e-3
WEIGHT_DECAYS = (1e-3, 1.0, 10.0)
"""Of AdamW, per unit of learning rate; every target takes the one that predicts the stopping fold best."""

_EPOCHS_AT_MOST = 30
_PATIENCE = 3
_HEAVIEST_YES = 20.0
_WIDEST_TARGET = 6.0
"""Standard deviations beyond which a target's values are cut in training: a few wild ones must not bend the rest."""


@fast_products()
def fit_mlp(x: np.ndarray | Columns, y: np.ndarray, fold: np.ndarray, yes_or_no: np.ndarray, seed: int) -> np.ndarray:
    """Cross-validate a network with one hidden layer; return predictions of records it has not seen, (B, T) float64.

    Input and targets are scaled by their training records. One further fold decides when to stop, and which weight
    decay and epoch each target is predicted with. The choice is the same for every input.

    Args:
        x: input, (B, C).
        y: targets, (B, T) float64, NaN where a target does not apply.
        fold: of each record, (B,) int64, at least three.
        yes_or_no: which targets are classified, (T,) bool.
    """
    x, numbers = Columns.of(x), np.unique(fold)
    predicted = np.empty(y.shape)
    for done, test in enumerate(numbers):
        stopping = numbers[(done + 1) % len(numbers)]
        tested, stopped = fold == test, fold == stopping
        parts = [np.flatnonzero(part) for part in (~(tested | stopped), stopped, tested)]
        predicted[tested] = _fit_fold(x, y, parts, yes_or_no, torch.Generator().manual_seed(seed + int(test)))
    return predicted


Tensors = tuple[torch.Tensor, torch.Tensor]
"""Input and targets of some records."""


def _fit_fold(
    x: Columns, y: np.ndarray, parts: list[np.ndarray], yes_or_no: np.ndarray, generator: torch.Generator
) -> np.ndarray:
    """Return predictions of the records of the last of three parts: to train on, to stop by, and to predict.

    Input and targets are taken to mean 0 and deviation 1 of the first; a yes-or-no target stays as it is. A column that
    does not vary there counts for nothing, as in the linear probes: its weights are never trained, and gold that agents
    have in no other world, say, would reach the output through random ones.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    own = [(v.mean(axis=0, dtype=np.float64), v.std(axis=0, dtype=np.float64)) for _, v in x.by_column(parts[0])]
    x_mean, x_deviation = (np.concatenate(some) for some in zip(*own, strict=True))
    x_per_unit = standardising(x_mean, x_deviation)
    known = y[parts[0]]
    y_mean = np.where(yes_or_no, 0.0, np.nan_to_num(np.nanmean(known, axis=0)))
    y_deviation = np.where(yes_or_no, 1.0, _deviation(known))
    widest = np.where(yes_or_no, 1.0, _WIDEST_TARGET)
    share = np.clip(np.nanmean(np.where(yes_or_no, known, 0.5), axis=0), 1e-6, 1)
    yes_weight = torch.from_numpy(np.clip((1 - share) / share, 0, _HEAVIEST_YES).astype(np.float32))

    def tensors(records: np.ndarray) -> Tensors:
        scaled = np.empty((len(records), x.width), np.float32)
        for columns, values in x.by_column(records):
            scaled[:, columns] = (values - x_mean[columns]) * x_per_unit[columns]
        targets = np.clip((y[records] - y_mean) / y_deviation, -widest, widest).astype(np.float32)
        return torch.from_numpy(scaled).to(device), torch.from_numpy(targets).to(device)

    trained, stopping, (tested, _) = map(tensors, parts)
    outputs = _train(
        trained, stopping, tested, torch.from_numpy(yes_or_no).to(device), yes_weight.to(device), generator
    )  # fmt: skip
    return outputs.cpu().numpy() * y_deviation + y_mean


def _deviation(values: np.ndarray) -> np.ndarray:
    deviation = np.nan_to_num(np.nanstd(values, axis=0))
    return np.where(deviation > 0, deviation, 1)


def _train(
    trained: Tensors, stopping: Tensors, tested: torch.Tensor, yes_or_no: torch.Tensor, yes_weight: torch.Tensor,
    generator: torch.Generator,
) -> torch.Tensor:  # fmt: skip
    """Train until the stopping fold gets no better; return each target's test outputs at their best, (B, T)."""
    x, y = trained
    networks = [_network(x.shape[1], y.shape[1], generator).to(x.device) for _ in WEIGHT_DECAYS]
    optimiser = torch.optim.AdamW(
        [{"params": network.parameters(), "weight_decay": decay}
         for network, decay in zip(networks, WEIGHT_DECAYS, strict=True)],
        _LEARNING_RATE,
    )  # fmt: skip
    known = torch.isfinite(stopping[1]).any(dim=0)  # targets with records to stop by, (T,)
    best = torch.full((y.shape[1],), torch.inf, device=x.device)
    outputs = torch.zeros(len(tested), y.shape[1], device=x.device)
    best_mean, since_best = torch.full((len(networks),), torch.inf), 0
    for _ in range(_EPOCHS_AT_MOST):
        for batch in torch.randperm(len(x), generator=generator).to(x.device).split(_BATCH):
            optimiser.zero_grad()
            shown, wanted = x[batch], y[batch]
            means = [_losses(network(shown), wanted, yes_or_no, yes_weight).mean() for network in networks]
            torch.stack(means).sum().backward()
            optimiser.step()
        stopping_means = []
        for network in networks:
            with torch.no_grad():
                now = _losses(network(stopping[0]), stopping[1], yes_or_no, yes_weight)  # (T,)
                if not known.all():
                    now = torch.where(known, now, _losses(network(x), y, yes_or_no, yes_weight))
                better = now < best
                best = torch.where(better, now, best)
                outputs[:, better] = network(tested)[:, better]
            stopping_means.append(float(now.mean()))
        mean = torch.tensor(stopping_means)
        since_best = 0 if bool((mean < best_mean).any()) else since_best + 1
        best_mean = torch.minimum(mean, best_mean)
        if since_best >= _PATIENCE:
            break
    return outputs


def _network(columns: int, targets: int, generator: torch.Generator) -> nn.Module:
    layers = nn.Linear(columns, _HIDDEN), nn.Linear(_HIDDEN, targets)
    for layer in layers:
        nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def _losses(outputs: torch.Tensor, y: torch.Tensor, yes_or_no: torch.Tensor, yes_weight: torch.Tensor) -> torch.Tensor:
    """Return each target's mean loss over the records that it applies to, (T,)."""
    applies = torch.isfinite(y)
    known = torch.where(applies, y, 0)
    squares = (outputs - known) ** 2
    crosses = nn.functional.binary_cross_entropy_with_logits(
        outputs, known.clamp(0, 1), reduction="none", pos_weight=yes_weight
    )
    loss = torch.where(yes_or_no, crosses, squares) * applies
    return loss.sum(dim=0) / applies.sum(dim=0).clamp(min=1)
