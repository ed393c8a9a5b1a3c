"""Share policies, dumps and reports: policies on the Hugging Face hub, all of them as artifacts of Weights & Biases.

    python share.py push my_policies/NAME.safetensors OWNER/NAME    # with a model card, written from its header
    python share.py pull OWNER/NAME                              # becomes my_policies/NAME.safetensors
    python share.py wandb activation_data/NAME analysis_results/NAME

Policies are safetensors files whose hashes are checked; nothing that is fetched is run. The hub needs the extra `hub`
and, to push, a login (`hf auth login`). See docs/sharing.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from agent_zoo.checkpoint_files import SUFFIX
from common import command_line
from common.argument_checks import check_file_name
from common.files import make_folder, read_bytes, write_bytes
from common.user_error import UserError, one_line, printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from agent_zoo.checkpoint import CheckpointInfo

CARD = "README.md"
LARGEST_BYTES = 1 << 30
_INSTALL = "install the hub's client: pip install -e .[hub], or uv sync --inexact --extra hub"


def main() -> None:
    """Parse, share, report."""
    command_line.chosen_command((push, pull, wandb), __doc__)()


def push(
    policy: tyro.conf.Positional[Path], repository: tyro.conf.Positional[str], private: bool = False,
    new_card: bool = False,
) -> None:  # fmt: skip
    """Push a policy to the Hugging Face hub.

    Args:
        policy: File of the policy (.safetensors).
        repository: Where it goes, OWNER/NAME; made if it does not exist.
        private: Make the repository private, if it is made.
        new_card: Replace the model card that is there; by default it is kept.
    """
    from agent_zoo.checkpoint import read_info

    info, content = read_info(policy), read_bytes(policy)
    sha256 = hashlib.sha256(content).hexdigest()
    with hub(repository) as api:
        from huggingface_hub import CommitOperationAdd

        address = str(api.create_repo(repository, private=private, exist_ok=True))
        operations = [CommitOperationAdd(policy.name, content)]
        if new_card or not api.file_exists(repository, CARD):
            card = model_card(policy.name.removesuffix(SUFFIX), repository, info, sha256)
            operations.append(CommitOperationAdd(CARD, card.encode()))
        commit = api.create_commit(repository, operations, commit_message=f"Policy {policy.name}")
    report("pushed", policy, info, f"{address} at {commit.oid}", sha256)


def pull(
    repository: tyro.conf.Positional[str], policy: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None,
    revision: str | None = None, policies_dir: Path = Path("my_policies"), overwrite: bool = False,
) -> None:  # fmt: skip
    """Fetch a policy from the Hugging Face hub.

    Args:
        repository: Where it is, OWNER/NAME.
        policy: Name of the policy, where the repository holds several.
        revision: Branch, tag or commit; by default the newest.
        policies_dir: Folder of the policies.
        overwrite: Replace a policy of that name.
    """
    from agent_zoo.checkpoint import read_info

    with hub(repository) as api:
        result = api.model_info(repository, revision=revision, files_metadata=True)
        chosen = chosen_file(repository, result.siblings or [], policy)
        target = policies_dir / chosen.rfilename
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
    make_folder(policies_dir)
    write_bytes(target, content)
    report("pulled", target, info, f"{api.endpoint}/{repository} at {result.sha}", sha256)


def wandb(
    paths: tyro.conf.Positional[tuple[Path, ...]], project: str = "nmmo-interpretability", entity: str | None = None,
    mode: Annotated[Literal["online", "offline"], tyro.conf.arg(name="wandb.mode")] = "online",
) -> None:  # fmt: skip
    """Keep policies, dumps and folders of results as artifacts of Weights & Biases.

    Args:
        paths: Policies (.safetensors), folders of dumps, folders of results with their reports.
        project: Name of the project.
        entity: User or team; by default that of your account.
        mode: online uploads now; offline writes files that `wandb sync` can upload later.
    """
    from common.weights_and_biases import share

    for path, kind in share(paths, mode, project, entity).items():
        print(f"{kind}: {path}")


def report(done: str, path: Path, info: "CheckpointInfo", address: str, sha256: str) -> None:
    """Say what a policy is and where it is now."""
    print(f"{done} policy: {path} ({info.agent}, {info.shown_steps} agent-steps)")
    print(f"on the hub: {address}")
    print(f"SHA-256: {sha256}")


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


if __name__ == "__main__":
    command_line.run(main)
