"""Where the lives of a result file come from, as far as the file says."""

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError


@dataclass(frozen=True)
class Provenance:
    """What evaluate.py notes about how a policy was played; the hash is None for an untrained policy."""

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")

    agent: str
    checkpoint_sha256: str | None
    mode: str
    seed: int
    episodes: int
    environment: dict[str, Any]
    task: dict[str, Any]
    agent_steps: int | None = None
    opponents: tuple[str, ...] | None = None
    protocol: str = "toolkit"


def read_provenance(content: object) -> Provenance:
    """Build the provenance from parsed JSON.

    Raises:
        ValueError: a key is missing or of the wrong type.
    """
    try:
        return TypeAdapter(Provenance).validate_json(orjson.dumps(content))
    except orjson.JSONEncodeError as error:
        raise ValueError(f"'provenance' cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("provenance", *first["loc"])))
        raise ValueError(f"{place!r}: {first['msg']}") from None
