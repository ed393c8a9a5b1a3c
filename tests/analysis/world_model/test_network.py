"""Parts of the network, and the costs, against their definitions."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from analysis.world_model.network import drawn
from analysis.world_model.scene import MOVES, displacement, edged, shift
from analysis.world_model.unroll import balanced_divergence, divergence, gaussian_divergence, spreading


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_a_view_shifts_by_the_agents_own_move(number: int) -> None:
    world = torch.randn(9, 9)
    row, column = MOVES[number]
    before, after = world[2:7, 2:7], world[2 + row : 7 + row, 2 + column : 7 + column]
    moved = torch.eye(len(MOVES))[[number]]
    found = shift(before.view(1, 1, 5, 5), moved)[0, 0]
    seen_before = torch.zeros(9, 9)
    seen_before[2:7, 2:7] = 1
    known = seen_before[2 + row : 7 + row, 2 + column : 7 + column] > 0
    torch.testing.assert_close(found[known], after[known])
    assert (found[~known] == 0).all() and known.sum() == (25 if number == 0 else 20)
    repeated = shift(before.view(1, 1, 5, 5), moved, edged(before.view(1, 1, 5, 5)))[0, 0]
    torch.testing.assert_close(repeated[known], after[known])
    if row:
        edge = 0 if row < 0 else 4
        torch.testing.assert_close(repeated[edge], before[edge])


def test_displacements_are_numbers_of_moves() -> None:
    before = torch.tensor([[5, 5]]).repeat(len(MOVES) + 1, 1)
    after = before + torch.tensor([*MOVES, (3, 0)])
    assert displacement(before, after).tolist() == [0, 1, 2, 3, 4, 0]


def test_latent_states_are_drawn_by_their_probabilities_with_their_gradients() -> None:
    probabilities = torch.tensor([[[0.7, 0.2, 0.1], [0.05, 0.05, 0.9]]]).repeat(4000, 1, 1)
    logits = probabilities.log().requires_grad_()
    found = drawn(logits.log_softmax(dim=2), torch.Generator().manual_seed(0))
    assert found.shape == (4000, 6) and ((found.detach().round() - found.detach()).abs() < 1e-5).all()
    torch.testing.assert_close(found.detach().mean(dim=0).view(2, 3), probabilities[0], atol=0.03, rtol=0)
    (gradient,) = torch.autograd.grad(found[0, 0], logits)
    torch.testing.assert_close(gradient[0, 0], torch.tensor([0.7 * 0.3, -0.7 * 0.2, -0.7 * 0.1]))
    assert drawn(logits.log_softmax(dim=2), None)[0].detach().round().tolist() == [1, 0, 0, 0, 0, 1]


def test_divergences_are_those_of_the_distributions() -> None:
    p, q = (torch.randn(3, 4, 5).log_softmax(dim=2) for _ in range(2))
    expected = kl_divergence(Categorical(logits=p), Categorical(logits=q)).sum(dim=1)
    torch.testing.assert_close(divergence(p, q), expected)
    mean, log_variance = torch.randn(3, 4), torch.randn(3, 4)
    normal = Normal(mean, (log_variance / 2).exp())
    expected = kl_divergence(normal, Normal(torch.zeros(3, 4), torch.ones(3, 4))).sum(dim=1)
    torch.testing.assert_close(gaussian_divergence(mean, log_variance), expected)


def test_balancing_keeps_the_divergence_and_shares_its_gradient() -> None:
    p, q = (torch.randn(2, 3, 4, requires_grad=True) for _ in range(2))
    plain = divergence(p.log_softmax(dim=2), q.log_softmax(dim=2)).sum()
    balanced = balanced_divergence(p.log_softmax(dim=2), q.log_softmax(dim=2), 0.8).sum()
    torch.testing.assert_close(plain, balanced)
    of_plain, of_balanced = (torch.autograd.grad(each, (p, q)) for each in (plain, balanced))
    torch.testing.assert_close(of_balanced[0], 0.2 * of_plain[0])
    torch.testing.assert_close(of_balanced[1], 0.8 * of_plain[1])


def test_vectors_are_pushed_apart() -> None:
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.ones(6, 3) + 0.1 * torch.randn(6, 3), dim=1).requires_grad_()
    assert float(spreading(torch.ones(5, 3))) == pytest.approx(0)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(spreading(opposite)) == pytest.approx(-4)
    before = spreading(vectors)  # all close together at first
    (gradient,) = torch.autograd.grad(before, vectors)
    assert float(spreading((vectors - 0.1 * gradient).detach())) < float(before.detach())
