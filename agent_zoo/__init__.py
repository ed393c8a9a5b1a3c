"""The policies under study: one folder per agent, which exports `Policy`, `Recurrent` and `RewardWrapper`."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any, Literal

from common.argument_checks import did_you_mean
from common.user_error import UserError

Network = Literal["published", "earlier"]
"""The networks that an agent may have."""
REQUIRED_CLASSES = ("Policy", "Recurrent", "RewardWrapper")
EARLIER_CLASS = "EarlierPolicy"
_NO_AGENTS = ("network_parts", "original")
"""Folders of what agents share."""


def names() -> list[str]:
    """Return the agents that can be trained: every other folder of this package, in alphabetical order."""
    folders = {module.name for module in pkgutil.iter_modules(__path__) if module.ispkg}
    return sorted(folders.difference(_NO_AGENTS))


def check_name(name: str) -> None:
    """Refuse an unknown agent, without importing any."""
    if name not in names():
        hint = did_you_mean(name, names())
        raise UserError(f"there is no agent {name!r} in agent_zoo/; there are: {', '.join(names())}{hint}")


def load(name: str) -> ModuleType:
    """Import an agent (UserError: the agent does not exist, or lacks one of the classes it must export)."""
    check_name(name)
    module = importlib.import_module(f"agent_zoo.{name}")
    missing = [required for required in REQUIRED_CLASSES if not hasattr(module, required)]
    if missing:
        raise UserError(f"agent_zoo/{name} lacks {', '.join(missing)}: an agent exports {', '.join(REQUIRED_CLASSES)}")
    return module


def policy_class(name: str, network: Network) -> Any:
    """Return the class of an agent's network; an agent without an `EarlierPolicy` has only `Policy`.

    Raises:
        UserError: as `load`, or the agent's earlier network is gone: its `EarlierPolicy` is None.
    """
    agent = load(name)
    if network == "published":
        return agent.Policy
    earlier = getattr(agent, EARLIER_CLASS, agent.Policy)
    if earlier is None:
        raise UserError(f"{name}'s earlier network is gone: train it as published, with --policy.network published")
    return earlier


def check_cell(name: str, cell: str) -> None:
    """Refuse a memory that an agent does not offer: any but the LSTM, if its `Recurrent` takes no `cell`.

    Raises:
        UserError: as `load`, or the agent cannot have that memory.
    """
    if cell != "lstm" and "cell" not in inspect.signature(load(name).Recurrent).parameters:
        raise UserError(
            f"--policy.cell {cell}: the agent {name} has an LSTM only, since its Recurrent takes no `cell`; "
            "docs/custom_policy.md shows how to add it"
        )


def usual_memory_layers(name: str) -> int:
    """Return how many layers the memory of an agent has where nothing else is asked for (UserError: as `load`)."""
    layers = inspect.signature(load(name).Recurrent).parameters.get("layers")
    return layers.default if layers and isinstance(layers.default, int) else 1
