"""Share policies, dumps and reports: policies on the Hugging Face hub, all of them as artifacts of Weights & Biases.

    python share.py push my_policies/NAME.safetensors OWNER/NAME    # with a model card, written from its header
    python share.py pull OWNER/NAME                              # becomes my_policies/NAME.safetensors
    python share.py wandb activation_data/NAME analysis_results/NAME

Policies are safetensors files whose hashes are checked; nothing that is fetched is run. The hub needs the extra `hub`
and, to push, a login (`hf auth login`). See docs/sharing.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from common import command_line

if TYPE_CHECKING:
    from agent_zoo.hub import Shared


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
    from agent_zoo import hub

    report("pushed", hub.push(policy, repository, private=private, new_card=new_card))


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
    from agent_zoo import hub

    report("pulled", hub.pull(repository, policies_dir, name=policy, revision=revision, overwrite=overwrite))


def report(done: str, shared: "Shared") -> None:
    """Say what a policy is and where it is now."""
    print(f"{done} policy: {shared.path} ({shared.info.agent}, {shared.info.shown_steps} agent-steps)")
    print(f"on the hub: {shared.address} at {shared.revision}")
    print(f"SHA-256: {shared.sha256}")


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


if __name__ == "__main__":
    command_line.run(main)
