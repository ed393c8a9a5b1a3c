"""Colours of agents and NPCs on a map, the same in the page and in films."""

import numpy as np

from analysis.labels import NOISE

NPC_KINDS = ("passive", "neutral", "aggressive")
NPC_COLOURS = dict(zip(NPC_KINDS, ("#ffffff", "#ffe14d", "#1d1d1f"), strict=True))
"""Colours of NPCs, also distinguished by lightness and by shape: triangle, diamond, square."""
NPC_SHAPES = dict(zip(NPC_KINDS, ("triangle", "diamond", "square"), strict=True))
UNLABELLED, UNLABELLED_COLOUR = -2, "#ffffff"


def policy_colours(policies: tuple[str, ...]) -> dict[str, str]:
    """Return a colour for each policy, in the order of names, as those of clusters."""
    from analysis.figures.style import cluster_colour

    return {policy: cluster_colour(number) for number, policy in enumerate(sorted(set(policies)))}


def cluster_colours(clusters: list[int]) -> dict[int, str]:
    """Return the colour of each cluster, as in the figures of the analysis, of noise, and of unlabelled agents."""
    from analysis.figures.style import NOISE_COLOUR, cluster_colour

    named = {cluster: cluster_colour(cluster) for cluster in clusters}
    return {UNLABELLED: UNLABELLED_COLOUR, NOISE: NOISE_COLOUR, **named}


def npc_facts() -> list[dict[str, str]]:
    """Return what pages read of kinds of NPCs."""
    return [{"name": kind, "colour": NPC_COLOURS[kind], "shape": NPC_SHAPES[kind]} for kind in NPC_KINDS]


def rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`."""
    red, green, blue = np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8).tolist()
    return red, green, blue
