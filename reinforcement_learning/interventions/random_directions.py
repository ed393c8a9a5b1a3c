"""Random directions for controls."""

from dataclasses import replace

import numpy as np

from agent_zoo.interchange import Interchange


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
