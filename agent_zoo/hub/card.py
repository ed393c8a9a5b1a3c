"""A model card, written from the header of a policy: what it is, how it was trained, and how to use it here."""

from collections.abc import Mapping

from agent_zoo.checkpoint import CheckpointInfo
from common.user_error import printable

_FRONT = """---
library_name: nmmo-interpretability
pipeline_tag: reinforcement-learning
tags:
- reinforcement-learning
- interpretability
- neural-mmo
---
"""


def model_card(name: str, repository: str, info: CheckpointInfo, sha256: str) -> str:
    """Return the card as Markdown."""
    memory = {"cell": "lstm"} | info.recurrent_arguments
    facts = {
        "agent": info.agent,
        "memory": memory,
        "network": info.policy_arguments,
        "agent-steps": info.shown_steps,
        "seed": info.seed,
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
        return "<br>".join(f"{_plain(key)}: {_cell(each)}" for key, each in sorted(value.items())) or "none"
    return f"`{_plain(value)}`"


def _plain(value: object) -> str:
    text = printable(str(value))
    return "".join(character for character in text if character not in "`|<>[]\\")
