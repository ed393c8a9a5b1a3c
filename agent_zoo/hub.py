"""Policies on the Hugging Face hub: a file of weights and its card. Nothing that is fetched is run."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_zoo.checkpoint import CheckpointInfo, read_info
from agent_zoo.checkpoint_files import SUFFIX
from common.argument_checks import check_file_name
from common.files import make_folder, read_bytes, write_bytes
from common.user_error import UserError, one_line, printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
LARGEST_BYTES = 1 << 30
_INSTALL = "install the hub's client: pip install -e .[hub], or uv sync --inexact --extra hub"


@dataclass(frozen=True)
class Shared:
    """A policy that was pushed or pulled."""

    path: Path  # on this machine
    info: CheckpointInfo
    address: str  # its repository on the hub
    revision: str  # the commit there
    sha256: str  # of the file


def push(policy: Path, repository: str, *, private: bool, new_card: bool) -> Shared:
    """Push a policy; its card is written where the repository has none.

    Args:
        repository: OWNER/NAME; made if it does not exist.
        new_card: whether to replace a card that is there.

    Raises:
        UserError: the file is no whole policy, or the hub cannot be reached or refuses.
    """
    info, content = read_info(policy), read_bytes(policy)
    sha256 = hashlib.sha256(content).hexdigest()
    with _hub(repository) as api:
        from huggingface_hub import CommitOperationAdd

        address = str(api.create_repo(repository, private=private, exist_ok=True))
        operations = [CommitOperationAdd(policy.name, content)]
        if new_card or not api.file_exists(repository, CARD):
            card = model_card(policy.name.removesuffix(SUFFIX), repository, info, sha256)
            operations.append(CommitOperationAdd(CARD, card.encode()))
        commit = api.create_commit(repository, operations, commit_message=f"Policy {policy.name}")
    return Shared(policy, info, address, commit.oid, sha256)


def pull(repository: str, folder: Path, *, name: str | None, revision: str | None, overwrite: bool) -> Shared:
    """Fetch a policy into a folder, once its hashes have proved it.

    Args:
        name: of the policy, where the repository holds several.
        revision: branch, tag or commit; by default the newest.

    Raises:
        UserError: there is no such policy, it is not whole or not one of this project, the folder has one of that
            name, or the hub cannot be reached or refuses.
    """
    with _hub(repository) as api:
        result = api.model_info(repository, revision=revision, files_metadata=True)
        chosen = _chosen(repository, result.siblings or [], name)
        target = folder / chosen.rfilename
        check_file_name(chosen.rfilename.removesuffix(SUFFIX))
        if target.exists() and not overwrite:
            raise UserError(f"{target} exists already: pass --overwrite to replace it, or another --policies-dir")
        if (chosen.size or 0) > LARGEST_BYTES:
            raise UserError(f"{target.name} in {repository} is larger than {LARGEST_BYTES >> 30} GiB: no policy is")
        with tempfile.TemporaryDirectory() as scratch:
            fetched = Path(api.hf_hub_download(repository, chosen.rfilename, revision=result.sha, local_dir=scratch))
            content = read_bytes(fetched)
            sha256 = hashlib.sha256(content).hexdigest()
            if chosen.lfs and chosen.lfs.sha256 != sha256:
                raise UserError(f"{target.name} from {repository} has another hash than the hub says: pull it again")
            info = read_info(fetched)
    make_folder(folder)
    write_bytes(target, content)
    return Shared(target, info, f"{api.endpoint}/{repository}", str(result.sha), sha256)


def _chosen(repository: str, files: list[Any], name: str | None) -> Any:
    policies = [file for file in files if file.rfilename.endswith(SUFFIX) and "/" not in file.rfilename]
    names = ", ".join(sorted(file.rfilename.removesuffix(SUFFIX) for file in policies)) or "none"
    wanted = [file for file in policies if name is None or file.rfilename == f"{name}{SUFFIX}"]
    if len(wanted) != 1:
        why = "name one with -p" if len(wanted) > 1 else "there is none of that name" if name else "look elsewhere"
        raise UserError(f"{repository} holds these policies: {one_line(names)}: {why}")
    return wanted[0]


@contextmanager
def _hub(repository: str) -> Iterator["HfApi"]:
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
        return "<br>".join(f"{_plain(key)}: {_cell(item)}" for key, item in sorted(value.items())) or "none"
    return f"`{_plain(value)}`"


def _plain(value: object) -> str:
    text = printable(str(value))
    return "".join(character for character in text if character not in "`|<>[]\\")
