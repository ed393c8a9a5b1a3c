"""Functions that read, and may replace, the tensors between the steps of a policy."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

Hook = Callable[[torch.Tensor], torch.Tensor | None]
"""Takes a layer's tensor, (B, units), and returns a replacement, or None to keep it."""


class Hooks:
    """The hooks of one policy. A copy of the policy, in this or another process, starts without hooks."""

    def __init__(self) -> None:
        self._attached: list[Mapping[str, Hook]] = []

    def __reduce__(self) -> tuple[type["Hooks"], tuple[()]]:
        return Hooks, ()

    @contextlib.contextmanager
    def attached(self, hooks: Mapping[str, Hook]) -> Iterator[None]:
        """Within the block, call these hooks; those of nested blocks run in the order in which they were attached."""
        mine = dict(hooks)
        self._attached.append(mine)
        try:
            yield
        finally:
            self._attached = [hooks_of_block for hooks_of_block in self._attached if hooks_of_block is not mine]

    def any_at(self, layers: Iterable[str]) -> bool:
        """Return whether there is a hook at one of these layers."""
        return bool(self._attached) and any(
            layer in hooks_of_block for hooks_of_block in self._attached for layer in layers
        )

    def through(self, layer: str, tensor: torch.Tensor) -> torch.Tensor:
        """Apply the hooks of a layer to its tensor and return the result: the same object if none replaces it.

        Raises:
            ValueError: a hook returned a tensor of another shape.
        """
        for hooks in self._attached:
            replacement = hooks[layer](tensor) if layer in hooks else None
            if replacement is None:
                continue
            if replacement.shape != tensor.shape:
                shapes = f"{tuple(replacement.shape)} instead of {tuple(tensor.shape)}"
                raise ValueError(f"a hook at layer {layer} returned a tensor of shape {shapes}")
            tensor = replacement
        return tensor
