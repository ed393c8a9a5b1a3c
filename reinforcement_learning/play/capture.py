"""Reads hidden activations out of a running policy, through hooks that never outlive their block."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from activation_store.schema import ACTION_DECODER, check_layers
from agent_zoo.base import RecurrentPolicy
from user_error import UserError

Captured = dict[str, torch.Tensor]


@contextlib.contextmanager
def capture(policy: RecurrentPolicy, layers: Sequence[str]) -> Iterator[Captured]:
    """Within the block, every tick the policy plays leaves its activations in the yielded dictionary.

    Args:
        policy: the policy that will play.
        layers: names from `activation_store.schema.LAYERS`.

    Yields:
        Layer name -> (B, units) of the latest tick; empty before the first.

    Raises:
        UserError: there is no layer of that name, or the policy has none.
    """
    check_layers(layers)
    captured: Captured = {}
    with contextlib.ExitStack() as hooks:
        for layer in layers:
            handle = _attach(policy, layer, captured)
            hooks.callback(handle.remove)
        yield captured


def layer_units(policy: RecurrentPolicy, layers: Sequence[str]) -> dict[str, int]:
    """Return the number of units of each layer.

    Raises:
        UserError: there is no layer of that name.
    """
    check_layers(layers)
    return dict.fromkeys(layers, policy.policy.hidden_size)


def _attach(policy: RecurrentPolicy, layer: str, captured: Captured) -> torch.utils.hooks.RemovableHandle:
    if layer == ACTION_DECODER:

        def keep_input(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            captured[layer] = inputs[0].detach()

        return policy.policy.action_decoder.register_forward_pre_hook(keep_input)
    module = policy.policy.projection if layer == "encoder_output" else policy.lstm
    if module is None:
        raise UserError(f"layer {layer} cannot be recorded: this policy is feed-forward and has no LSTM")
    read = _READERS[layer]

    def keep_output(_: nn.Module, __: object, output: tuple) -> None:
        captured[layer] = read(output).detach()

    return module.register_forward_hook(keep_output)


# An LSTM returns (output, (hidden, cell)), hidden and cell (layers, B, units); the last layer is the one read on.
_READERS: dict[str, Callable[..., torch.Tensor]] = {
    "encoder_output": lambda output: output,
    "lstm_hidden": lambda output: output[1][0][-1],
    "lstm_cell": lambda output: output[1][1][-1],
}
