"""Share policies, dumps and reports: policies on the Hugging Face hub, all of them as artifacts of Weights & Biases.

    python share.py push my_policies/NAME.safetensors OWNER/NAME    # with a model card, written from its header
    python share.py pull OWNER/NAME                              # becomes my_policies/NAME.safetensors
    python share.py wandb activation_data/NAME analysis_results/NAME

Policies are safetensors files whose hashes are checked; nothing that is fetched is run. The hub needs the extra `hub`
and, to push, a login (`hf auth login`). See docs/sharing.md.
"""

import common.environment_check  # isort: skip  # noqa: F401 (must come first)

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from common import command_line

if TYPE_CHECKING:
    from agent_zoo.hub import Shared


@dataclass(frozen=True)
class Push:
    """Push a policy to the Hugging Face hub."""

    policy: tyro.conf.Positional[Path]
    """File of the policy (.safetensors)."""
    repository: tyro.conf.Positional[str]
    """Where it goes, OWNER/NAME; made if it does not exist."""
    private: bool = False
    """Make the repository private, if it is made."""
    new_card: bool = False
    """Replace the model card that is there; by default it is kept."""


@dataclass(frozen=True)
class Pull:
    """Fetch a policy from the Hugging Face hub."""

    repository: tyro.conf.Positional[str]
    """Where it is, OWNER/NAME."""
    policy: Annotated[str | None, tyro.conf.arg(aliases=["-p"])] = None
    """Name of the policy, where the repository holds several."""
    revision: str | None = None
    """Branch, tag or commit; by default the newest."""
    policies_dir: Path = Path("my_policies")
    """Folder of the policies."""
    overwrite: bool = False
    """Replace a policy of that name."""


@dataclass(frozen=True)
class WandbArguments:
    """Keep policies, dumps and folders of results as artifacts of Weights & Biases."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Policies (.safetensors), folders of dumps, folders of results with their reports."""
    project: str = "nmmo-interpretability"
    """Name of the project."""
    entity: str | None = None
    """User or team; by default that of your account."""
    mode: Annotated[Literal["online", "offline"], tyro.conf.arg(name="wandb.mode")] = "online"
    """online uploads now; offline writes files that `wandb sync` can upload later."""


Command = (
    Annotated[Push, tyro.conf.subcommand("push")]
    | Annotated[Pull, tyro.conf.subcommand("pull")]
    | Annotated[WandbArguments, tyro.conf.subcommand("wandb")]
)


def main() -> None:
    """Parse, share, report."""
    command_type: Any = Command
    command = command_line.parse(command_type, __doc__)
    if isinstance(command, WandbArguments):
        keep(command)
        return
    from agent_zoo.hub import pull, push

    if isinstance(command, Push):
        shared = push(command.policy, command.repository, private=command.private, new_card=command.new_card)
    else:
        shared = pull(
            command.repository, command.policies_dir,
            name=command.policy, revision=command.revision, overwrite=command.overwrite,
        )  # fmt: skip
    report("pushed" if isinstance(command, Push) else "pulled", shared)


def report(done: str, shared: "Shared") -> None:
    """Say what a policy is and where it is now."""
    print(f"{done} policy: {shared.path} ({shared.info.agent}, {shared.info.shown_steps} agent-steps)")
    print(f"on the hub: {shared.address} at {shared.revision}")
    print(f"SHA-256: {shared.sha256}")


def keep(wanted: WandbArguments) -> None:
    """Log all paths as artifacts of one run, after all of them have been checked."""
    from common.weights_and_biases import share

    for path, kind in share(wanted.paths, wanted.mode, wanted.project, wanted.entity).items():
        print(f"{kind}: {path}")


if __name__ == "__main__":
    command_line.run(main)
