"""Mean costs over the predictions of a batch that several processes may share."""

from collections.abc import Sequence

import torch

from agent_zoo.data_parallel import Processes
from representation.world_model.losses import Costs


class Totals:
    """Adds up costs by name, so that their means are those over all processes' predictions."""

    def __init__(self, names: Sequence[str]):
        """Begin.

        Args:
            names: of all costs, in an order that all processes share.
        """
        self._names = tuple(names)
        self._sums: dict[str, torch.Tensor] = {}
        self._counts = dict.fromkeys(self._names, 0)

    def add(self, costs: Costs) -> None:
        """Add the costs of some predictions, (B,) each."""
        for name, each in costs.items():
            self._sums[name] = self._sums.get(name, 0.0) + each.sum()
            self._counts[name] += len(each)

    def means(self, processes: Processes) -> tuple[Costs, dict[str, float]]:
        """Return what this process adds to each mean, with gradients, and the means; costs of nothing are left out.

        The gradients of the means are the sums of the processes' gradients.
        """
        sums = torch.stack([torch.as_tensor(self._sums.get(name, 0.0)).detach().double() for name in self._names])
        counts = torch.tensor([self._counts[name] for name in self._names], dtype=torch.float64)
        total, count = processes.concatenate(torch.stack([sums, counts]).unsqueeze(0)).sum(dim=0)
        numbers = zip(self._names, total.tolist(), count.tolist(), strict=True)
        found = {name: (each, number) for name, each, number in numbers if number}
        own = {name: torch.as_tensor(self._sums.get(name, 0.0)) / number for name, (_, number) in found.items()}
        return own, {name: each / number for name, (each, number) in found.items()}
