"""Behavioural features of agents: the registry, and their values for any records of a dump."""

from analysis.features.feature import Feature
from analysis.features.registry import (
    EXTENDED_FEATURES,
    FEATURE_NAMES,
    FEATURE_SETS,
    FEATURES,
    as_markdown,
    feature_matrix,
    features_named,
    needs_history,
    read_history,
    with_heads_of,
)

__all__ = [
    "EXTENDED_FEATURES", "FEATURES", "FEATURE_NAMES", "FEATURE_SETS", "Feature", "as_markdown", "feature_matrix",
    "features_named", "needs_history", "read_history", "with_heads_of",
]  # fmt: skip
