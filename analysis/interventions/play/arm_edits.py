"""How an edit of a run is made in each arm: as it is, or as a control of the same size."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from activation_store.directions import Direction
from activation_store.interventions import Arm
from analysis.interventions.edits.edit import Edit
from analysis.interventions.edits.feature_edits import FeatureEdit
from analysis.interventions.edits.linear_readings import StateMoments
from analysis.interventions.edits.memory_edits import KeptMemory, MemoryEdit, MovedAsFar
from analysis.interventions.edits.state_edits import AsFarAs, DirectedEdit, Eraser, Interchange, StateEdit, Untouched

_MOST_ALIKE = 0.5  # largest share of a control's direction that all controls may have in common
Moments = Mapping[str, StateMoments]
"""Of the unedited states of a policy, by layer, and by the names of readings with their variables."""


def made_in_arm(
    edit: Edit, arm: Arm, moments: Moments, random: np.random.Generator, kept: Sequence[str]
) -> StateEdit | MemoryEdit:
    """Return an edit as it is made in an arm.

    Args:
        kept: layers whose states the memory carries into the next tick.

    Raises:
        UserError, NothingToErase: as `Edit.made`.
    """
    if arm.kind == "no edit":
        return Untouched(edit.layers[0]) if edit.layers else KeptMemory()
    directions: Sequence[Direction] = edit.directions
    if arm.policy == "untrained":
        directions = [measured_in(direction, moments) for direction in directions]
    if arm.played_kind == "same variance":
        directions = same_variance(directions, moments, random)
    donor = edit.donor
    if donor and arm.kind == "random donor":
        donor = replace(donor, lottery=arm.number)
    made = replace(edit, directions=tuple(directions), donor=donor).made(
        arm.dose, lambda layer: moments[layer].covariance, lambda reading: reading.of(moments[reading.name]), arm.policy
    )
    if isinstance(made, Eraser) and arm.played_kind == "same variance":
        return random_eraser(made, moments[made.layer], random)
    if arm.played_kind != "random direction":
        return made
    if isinstance(made, MemoryEdit):
        return MovedAsFar(made, int(random.integers(2**31)))
    assert isinstance(made, DirectedEdit | Interchange)
    return _in_random_directions(made, moments, random, kept)


def measured_in(direction: Direction, moments: Moments) -> Direction:
    """Return the direction with the mean and the spread of its read-out over a policy's own unedited states."""
    if direction.layer not in moments:
        return direction
    own, weight = moments[direction.layer], direction.weight.astype(np.float64)
    spread = float(np.sqrt(weight @ own.covariance @ weight))
    return replace(direction, mean=float(weight @ own.mean + direction.bias), spread=spread)


def _in_random_directions(
    edit: DirectedEdit | Interchange, moments: Moments, random: np.random.Generator, kept: Sequence[str]
) -> AsFarAs | Interchange:
    """Return the control that moves states as far as an edit does, along as many random directions."""
    count, units = (edit.read_outs if isinstance(edit, Interchange) else edit).axes().shape
    directions = orthonormal(count, units, random)
    if isinstance(edit, Interchange):
        return replace(edit, along=directions)
    # What a reconstruction misses is turned to another direction in each state, so nothing is to be held in place.
    is_splice = isinstance(edit, FeatureEdit) and not edit.numbers
    adds_up = edit.layer in kept and edit.of == "state" and not is_splice
    return AsFarAs(edit, directions, directions @ moments[edit.layer].mean if adds_up else None)


def orthonormal(count: int, units: int, random: np.random.Generator) -> np.ndarray:
    """Return random directions of length 1 that are orthogonal to each other, (count, units)."""
    return np.linalg.qr(random.standard_normal((units, count)))[0].T


def same_variance(edited: Sequence[Direction], moments: Moments, random: np.random.Generator) -> list[Direction]:
    """Return random directions along which states vary as much as along K edited ones, or as nearly as possible.

    Their read-outs are uncorrelated with those of the edited directions. Otherwise the control of a direction that
    varies more than nearly all others would be turned towards that direction, and do what the edit does. As far as
    there are units left, they are uncorrelated with each other too: two controls of such directions would be turned
    towards the same one, and an edit of both would be without bounds.
    """
    drawn: list[Direction] = []
    for direction in edited:
        covariance = moments[direction.layer].covariance
        own = _unit(direction.weight.astype(np.float64))
        weights = np.array([other.weight for other in (*edited, *drawn)], np.float64)[: len(covariance) - 1]
        apart = np.linalg.svd(weights @ covariance)[2][len(weights) :].T  # orthonormal columns, (units, units - K)
        turned = apart @ _unit_of_variance(apart.T @ covariance @ apart, _variance(own, covariance), random)
        weight = (turned * np.linalg.norm(direction.weight)).astype(np.float32)
        drawn.append(measured_in(replace(direction, name=f"like {direction.name}", weight=weight, bias=0.0), moments))
    return drawn


def random_eraser(eraser: Eraser, states: StateMoments, random: np.random.Generator) -> Eraser:
    """Return an eraser of as many random read-outs, which takes as much variance from the states.

    Where the states are white, every read-out is a direction, and its erasure is the projection along it. The
    directions are random and orthogonal there; each takes the variance that one of the eraser's takes.
    """
    covariance = states.covariance
    values, vectors = np.linalg.eigh(covariance)
    white = vectors / np.sqrt(values) @ vectors.T
    colour = vectors * np.sqrt(values) @ vectors.T
    free = np.eye(len(covariance))  # orthonormal columns: where directions can still be drawn
    drawn = []
    for taken in np.linalg.eigvalsh(eraser.left.T @ eraser.left)[::-1]:
        along = free @ _unit_of_variance(free.T @ covariance @ free, float(taken), random)
        drawn.append(along)
        free = np.linalg.svd(np.array(drawn))[2][len(drawn) :].T
    directions = np.array(drawn).reshape(-1, len(covariance))
    return Eraser(eraser.layer, colour @ directions.T, directions @ white, states.mean)


def _unit_of_variance(covariance: np.ndarray, wanted: float, random: np.random.Generator) -> np.ndarray:
    """Return a random direction of length 1 along which states have a given variance, (units,).

    A random direction is turned towards the component of the largest or of the smallest variance until it fits. Draws
    that end near that component would be much the same, and controls must differ to tell what one more of them may do.
    These are made of all components, weighted by up to the first power of their variances or of the inverse: the
    variance is then the wanted one, or as near to it as such a mixture comes.

    Args:
        covariance: of the states, (units, units).
    """
    start = _unit(random.standard_normal(len(covariance)))
    values, vectors = np.linalg.eigh(covariance)
    larger = _variance(start, covariance) < wanted
    end = vectors[:, -1] if larger else vectors[:, 0]
    power = 1.0 if larger else -1.0

    def fitting(moved: Callable[[float], np.ndarray]) -> np.ndarray:
        low, high, direction = 0.0, 1.0, start
        for _ in range(60):  # by bisection: the variance at 0 and at 1 lie on both sides of the wanted one
            middle = (low + high) / 2
            direction = moved(middle)
            beyond = (_variance(direction, covariance) - wanted) * (_variance(start, covariance) - wanted) < 0
            low, high = (low, middle) if beyond else (middle, high)
        return direction

    turned = fitting(lambda share: _unit((1 - share) * start + share * end))
    if (turned @ end) ** 2 <= _MOST_ALIKE:
        return turned
    return fitting(lambda share: _unit(vectors @ (values ** (power * share) * (vectors.T @ start))))


def _variance(direction: np.ndarray, covariance: np.ndarray) -> float:
    """Return the variance of states along a direction of length 1."""
    return float(direction @ covariance @ direction)


def _unit(vector: np.ndarray) -> np.ndarray:
    """Return a vector of the same direction with length 1."""
    return vector / np.linalg.norm(vector)
