"""Random directions and read-outs, for controls."""

from dataclasses import replace

import numpy as np

from agent_zoo.state_edits import Eraser, Interchange
from agent_zoo.state_moments import StateMoments


def orthonormal(count: int, units: int, random: np.random.Generator) -> np.ndarray:
    """Return random directions of length 1 that are orthogonal to each other, (count, units)."""
    return np.linalg.qr(random.standard_normal((units, count)))[0].T


def towards_donors(edit: Interchange, random: np.random.Generator) -> Interchange:
    """Return the control that moves states as far, along as many random directions."""
    count, units = edit.read_outs.read.shape
    return replace(edit, along=orthonormal(count, units, random))


def unit_of_variance(covariance: np.ndarray, wanted: float, random: np.random.Generator) -> np.ndarray:
    """Return a random direction of length 1 along which states have a given variance, (units,).

    A random direction is turned towards the component of the largest or of the smallest variance until it fits; if
    even that component does not reach the variance, it is the result.

    Args:
        covariance: of the states, (units, units).
        wanted: variance along the direction.
        random: draws the direction.
    """
    start = unit(random.standard_normal(len(covariance)))
    _, vectors = np.linalg.eigh(covariance)
    end = vectors[:, -1] if variance(start, covariance) < wanted else vectors[:, 0]
    low, high = 0.0, 1.0
    turned = start
    for _ in range(60):  # by bisection: the variance at 0 and at 1 lie on both sides of the wanted one
        middle = (low + high) / 2
        turned = unit((1 - middle) * start + middle * end)
        beyond = (variance(turned, covariance) - wanted) * (variance(start, covariance) - wanted) < 0
        low, high = (low, middle) if beyond else (middle, high)
    return turned


def variance(direction: np.ndarray, covariance: np.ndarray) -> float:
    """Return the variance of states along a direction of length 1."""
    return float(direction @ covariance @ direction)


def unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of the same direction with length 1."""
    return vector / np.linalg.norm(vector)


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
