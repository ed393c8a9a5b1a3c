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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from agent_zoo.checkpoint_files import SUFFIX
from agent_zoo.hub import CARD, LARGEST_BYTES, chosen_file, hub, model_card
from common import command_line
from common.argument_checks import check_file_name
from common.files import make_folder, read_bytes, write_bytes
from common.user_error import UserError

if TYPE_CHECKING:
    from agent_zoo.checkpoint import CheckpointInfo


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


if __name__ == "__main__":
    command_line.run(main)
