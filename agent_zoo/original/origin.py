"""Where an imported policy comes from, as its checkpoint says."""

from dataclasses import dataclass

from pydantic import ConfigDict


@dataclass(frozen=True)
class Origin:
    """The file of another project that a policy was imported from."""

    file: str
    sha256: str  # of its bytes
    classes: tuple[str, ...]  # of the network and its parts, as the file names them; empty if it is a state dict
    steps_known: bool  # whether it, or a file beside it, says for how many agent-steps the policy was trained

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")
