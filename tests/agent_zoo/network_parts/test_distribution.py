"""Sampling by inverting the cumulative distribution, with one number in [0, 1) per choice."""

import pytest
import torch

from agent_zoo.network_parts.distribution import ILLEGAL, ActionDistribution, Choices
from agent_zoo.observation import ActionHead

JUST_BELOW_ONE = 1 - 2.0**-53


def choices(probabilities: list[list[float]], option: list[list[int]] | None = None) -> Choices:
    """One choice per row, each of a different agent, among options with these probabilities; 0 is illegal."""
    given = torch.tensor(probabilities)
    everyone = torch.arange(len(given))
    named = None if option is None else torch.tensor(option)
    logits = torch.where(given == 0, ILLEGAL, given.log())
    return Choices(everyone, torch.zeros_like(everyone), logits, named)


def drawn(choices: Choices, *numbers: float) -> list[int]:
    return choices.draw(torch.tensor(numbers, dtype=torch.float64)).tolist()


def test_the_first_option_whose_cumulative_probability_exceeds_the_number_is_drawn_whatever_the_padding() -> None:
    numbers = (0.0, 0.24, 0.26, 0.74, 0.76, JUST_BELOW_ONE)
    assert drawn(choices([[0.25, 0.5, 0.25]] * len(numbers)), *numbers) == [0, 0, 1, 1, 2, 2]
    # The same choice alone, and in a batch with a wider one.
    numbers = torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = choices([[0.3, 0.3, 0.4]] * 200, [[4, 7, 99]] * 200)
    padded = choices([[0.3, 0.3, 0, 0, 0.4], [0.2] * 5] * 200, [[4, 7, -1, -1, 99], [0, 1, 2, 3, 99]] * 200)
    among_others = padded.draw(numbers.repeat_interleave(2))[::2]
    assert torch.equal(alone.draw(numbers), among_others)
    assert set(among_others.tolist()) == {4, 7, 99}


@pytest.mark.parametrize("number", [0.0, 1e-300, 0.5, 1 - 1e-9, JUST_BELOW_ONE])
def test_what_is_illegal_is_never_drawn(number: float) -> None:
    """First, last, and in the middle; among few options and many, whose probabilities do not add up to exactly 1."""
    legal = [2, 3, 5]
    few = [[0.0, 0.0, 0.1, 0.7, 0.0, 0.2, 0.0]]
    assert drawn(choices(few), number)[0] in legal
    torch.manual_seed(0)
    possible = torch.rand(500, 300) < 0.3
    possible[:, 150] = True
    many = choices((torch.rand(500, 300) * possible).tolist())
    result = many.draw(torch.full((500,), number, dtype=torch.float64))
    assert possible.gather(1, result.unsqueeze(1)).all()


def test_divergence_is_that_of_the_full_tables_however_choices_are_padded() -> None:
    """An own head of three options, and a head of rows with a no-op, 4, which one of two policies pads wider."""
    heads = (ActionHead("Move", 3, None, None), ActionHead("Target", 5, 4, "entity"))
    only = torch.tensor([[0, 4], [0, 4]])

    def policy(move: list[list[float]], target: list[list[float]], option: list[list[int]]) -> ActionDistribution:
        rows = choices(target, option)
        rows = Choices(torch.tensor([1]), torch.tensor([1]), rows.logits, rows.option)
        return ActionDistribution(heads, only, (choices(move), rows))

    one = policy([[0.2, 0.8, 0.0], [0.1, 0.3, 0.6]], [[0.5, 0.0, 0.0, 0.5]], [[2, -1, -1, 4]])
    other = policy([[0.5, 0.5, 0.0], [0.1, 0.3, 0.6]], [[0.9, 0.1]], [[2, 4]])
    result = one.divergence(other)
    full = zip(one.log_probabilities, other.log_probabilities, strict=True)
    expected = [(before.exp() * (before - after)).sum(dim=1) for before, after in full]
    torch.testing.assert_close(result, torch.stack(expected, dim=1).double(), rtol=1e-5, atol=1e-7)
    assert result[0, 0] > 0.1 and result[1, 0] == 0 and result[0, 1] == 0 and result[1, 1] > 0.5
