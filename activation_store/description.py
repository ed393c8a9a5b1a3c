"""Describe the contents of a dump in words."""

from activation_store.columns import Column
from activation_store.schema import MAY_BE_UNRECORDED, DumpMetadata

_ALWAYS = {
    "step": Column("int64", None, "ticks", "Environment steps since the extraction began."),
    "env_id": Column("int64", None, "slot", "The slot whose memory the agent used."),
    "agent_id": Column("int64", None, "id", "The agent's id in the game, from 1."),
    "episode": Column("int64", None, "number", "Number of the episode across all environments."),
    "tick": Column("int64", None, "ticks", "The game's tick within the episode."),
    "reward": Column("float32", None, "reward", "The reward for this action."),
    "value": Column("float32", None, "reward", "The critic's estimate of the future rewards."),
}
_SHOWN_AT_MOST = 10


def describe(metadata: DumpMetadata) -> list[tuple[str, str]]:
    """Return rows of names and values that summarise a dump."""
    size = sum(file.bytes for file in metadata.files.values())
    seeds = sorted({str(episode["seed"]) for episode in metadata.episodes if "seed" in episode})
    precision: str = metadata.precision
    for layer, error in metadata.precision_error.items():
        precision += f"; {layer} was rounded by {error.absolute:.2g} at most, {error.relative:.2g} of the value"
    versions = ", ".join(f"{name} {version}" for name, version in sorted(metadata.versions.items()))
    return [
        ("policy", metadata.policy),
        ("agent", metadata.agent),
        *([("origin", f"simulated by world model {metadata.world_model_sha256}")] * (metadata.origin == "simulated")),
        ("steps trained", "unknown" if metadata.steps_trained is None else f"{metadata.steps_trained:,}"),
        ("checkpoint SHA-256", metadata.checkpoint_sha256 or "none"),
        ("records", f"{metadata.records:,}"),
        ("lives", f"{metadata.lives:,}"),
        ("episodes", f"{len(metadata.episodes):,}"),
        ("layers", ", ".join(f"{name} ({units})" for name, units in metadata.layers.items())),
        ("tables", ", ".join(f"{name} ({len(columns)} columns)" for name, columns in metadata.all_tables.items())),
        ("action heads", ", ".join(f"{head.name} ({head.size})" for head in metadata.action_heads)),
        ("format", f"{metadata.format}, schema version {metadata.schema_version}"),
        ("precision", precision),
        ("files", f"{len(metadata.files):,}, {size:,} bytes"),
        ("bytes a record", f"{size / metadata.records:,.0f}"),
        ("seed", "unknown" if metadata.seed is None else str(metadata.seed)),
        ("seeds of episodes", _some(seeds) or "unknown"),
        ("versions", versions or "unknown"),
    ]


def describe_columns(metadata: DumpMetadata) -> list[tuple[str, str, str, str]]:
    """Return one row per field of a record: its name, type, unit and definition."""
    heads = len(metadata.action_heads)
    columns = {name: column for name, column in _ALWAYS.items() if name not in metadata.unrecorded}
    columns["action"] = Column("int32", heads, "index", "The option chosen in each head.")
    if MAY_BE_UNRECORDED[-1] not in metadata.unrecorded:
        columns["log_probability"] = Column(
            "float32", heads, "nats", "Log-probability of the option chosen in each head."
        )
    columns |= metadata.columns
    return [(name, _type(column), column.unit, column.definition) for name, column in columns.items()]


def _type(column: Column) -> str:
    return column.dtype if column.width is None else f"{column.dtype} x {column.width}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN_AT_MOST]) + (", ..." if len(names) > _SHOWN_AT_MOST else "")
