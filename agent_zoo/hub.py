"""Policies on the Hugging Face hub: its client, which file of a repository is meant, and the model card."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agent_zoo.checkpoint_files import SUFFIX
from common.user_error import UserError, one_line, printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from agent_zoo.checkpoint import CheckpointInfo

CARD = "README.md"
LARGEST_BYTES = 1 << 30
_INSTALL = "install the hub's client: pip install -e .[hub], or uv sync --inexact --extra hub"


def chosen_file(repository: str, files: list[Any], name: str | None) -> Any:
    """Return the policy of that name among the files of a repository; without a name, the only one."""
    policies = [file for file in files if file.rfilename.endswith(SUFFIX) and "/" not in file.rfilename]
    names = ", ".join(sorted(file.rfilename.removesuffix(SUFFIX) for file in policies)) or "none"
    wanted = [file for file in policies if name is None or file.rfilename == f"{name}{SUFFIX}"]
    if len(wanted) != 1:
        why = "name one with -p" if len(wanted) > 1 else "there is none of that name" if name else "look elsewhere"
        raise UserError(f"{repository} holds these policies: {one_line(names)}: {why}")
    return wanted[0]


@contextmanager
def hub(repository: str) -> Iterator["HfApi"]:
    """Give the hub's client; whatever it raises becomes one line."""
    if find_spec("huggingface_hub") is None:
        raise UserError(f"policies cannot be shared without huggingface_hub: {_INSTALL}")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        yield HfApi(library_name="nmmo-interpretability")
    except HFValidationError:
        raise UserError(f"{repository!r} is no repository of the hub: write OWNER/NAME") from None
    except UserError:
        raise
    except Exception as error:  # its own errors, and those of the network libraries below it
        text = one_line(str(error)) or type(error).__name__
        raise UserError(
            f"the hub cannot be used for {repository} ({text}): check the name, the network and, for private "
            "repositories and pushes, the login (`hf auth login`)"
        ) from None


_FRONT = """---
library_name: nmmo-interpretability
pipeline_tag: reinforcement-learning
tags:
- reinforcement-learning
- interpretability
- neural-mmo
---
"""


def model_card(name: str, repository: str, info: "CheckpointInfo", sha256: str) -> str:
    """Return the card as Markdown."""
    memory = {"cell": "lstm"} | info.recurrent_arguments
    facts = {
        "agent": info.agent,
        "memory": memory,
        "network": info.policy_arguments,
        "agent-steps": info.shown_steps,
        "seed": info.seed if info.origin is None else "unknown",
        "tasks": info.task,
        "world": info.environment,
        "rewards": info.reward,
        "versions": info.versions,
        "SHA-256": sha256,
    }
    rows = "".join(f"| {fact} | {_cell(value)} |\n" for fact, value in facts.items() if value not in ({}, ""))
    origin = "" if info.origin is None else "\nIt was imported from a checkpoint of the original repository.\n"
    return (
        f"{_FRONT}\n# {_plain(name)}\n\nAn agent with a memory that plays Neural MMO. This page is written from the "
        f"header of its file.\n{origin}\n| | |\n|---|---|\n{rows}\n## Use\n\nIn a folder of the toolkit:\n\n```bash\n"
        f"python share.py pull {repository}\npython extract_activations.py pve -p {_plain(name)} -n 1\n```\n\n"
        "The file is safetensors: weights, and text in a header. Opening it runs no code, and its hash is checked.\n"
    )


def _cell(value: object) -> str:
    """Return a value as text of a table, in which nothing can be markup."""
    if isinstance(value, Mapping):
        return "<br>".join(f"{_plain(key)}: {_cell(item)}" for key, item in sorted(value.items())) or "none"
    return f"`{_plain(value)}`"


def _plain(value: object) -> str:
    text = printable(str(value))
    return "".join(character for character in text if character not in "`|<>[]\\")
