"""Erasers of random read-outs, as controls."""

import numpy as np

from agent_zoo.state_edits import Eraser
from agent_zoo.state_moments import StateMoments
from reinforcement_learning.interventions.random_directions import unit_of_variance


def random_eraser(eraser: Eraser, states: StateMoments, random: np.random.Generator) -> Eraser:
    """Return an eraser of as many random read-outs, which takes as much variance from the states.

    Where the states are white, every read-out is a direction, and its erasure is the projection along it. The
    directions are random and orthogonal there; each takes the variance that one of the eraser's takes.

    Args:
        eraser: whose place it takes.
        states: that the eraser was fitted to.
        random: draws the directions.
    """
    covariance = states.covariance
    values, vectors = np.linalg.eigh(covariance)
    white = vectors / np.sqrt(values) @ vectors.T
    colour = vectors * np.sqrt(values) @ vectors.T
    free = np.eye(len(covariance))  # orthonormal columns: where directions can still be drawn
    found = []
    for taken in np.linalg.eigvalsh(eraser.left.T @ eraser.left)[::-1]:
        along = free @ unit_of_variance(free.T @ covariance @ free, float(taken), random)
        found.append(along)
        free = np.linalg.svd(np.array(found))[2][len(found) :].T
    directions = np.array(found).reshape(-1, len(covariance))
    return Eraser(eraser.layer, colour @ directions.T, directions @ white, states.mean)
