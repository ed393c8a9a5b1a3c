"""The losses of a semantic plane are the paper's, their gradients finite differences; dead codes restart."""

import numpy as np
import pytest
import torch

from agent_zoo.agent_settings import SemanticShape
from agent_zoo.semantic_module import (
    SemanticModule,
    log_similarities,
    pairwise_loss,
    perplexity,
    quantisation_loss,
    restart_dead_codes,
)

ALPHA, BETA = 3.0, 0.25


def rows(count: int, units: int, seed: int) -> torch.Tensor:
    return torch.randn(count, units, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_columns(x: torch.Tensor, alpha: float) -> np.ndarray:
    """The similarities as the paper defines them: divided by the sum of their column."""
    points = x.detach().numpy()
    s = (1 + np.square(points[:, None] - points).sum(axis=2) / alpha) ** (-(alpha + 1) / 2)
    np.fill_diagonal(s, 0)
    return np.maximum(s / s.sum(axis=0), 1e-10)


def plain_pairwise_loss(features: torch.Tensor, plane: torch.Tensor, alpha: float) -> float:
    return float(-np.mean(by_columns(features, alpha) * np.log(by_columns(plane, alpha))))


def test_the_pairwise_loss_is_the_papers_and_least_where_the_plane_keeps_neighbours() -> None:
    features, plane = rows(9, 5, 1), rows(9, 2, 2)
    assert float(pairwise_loss(features, plane, ALPHA)) == pytest.approx(plain_pairwise_loss(features, plane, ALPHA))
    own = log_similarities(features, ALPHA).exp()
    assert torch.allclose(own, torch.from_numpy(by_columns(features, ALPHA).T))
    far = torch.cat([features, features[:1] + 1e6])  # beyond the smallest similarity
    assert float(pairwise_loss(far, far[:, :2], 20.0)) == pytest.approx(plain_pairwise_loss(far, far[:, :2], 20.0))
    features = torch.cat([rows(10, 3, seed) * 0.1 + 5 * torch.eye(3, dtype=torch.float64)[seed] for seed in range(3)])
    good = torch.cat([rows(10, 2, 9) * 0.1 + 5 * torch.tensor([k % 2, k // 2]) for k in range(3)])
    shuffled = good[torch.randperm(30, generator=torch.Generator().manual_seed(0))]
    assert pairwise_loss(features, good) < pairwise_loss(features, shuffled)


def test_its_gradient_is_that_of_finite_differences_for_features_and_places() -> None:
    features, plane = rows(7, 4, 3).requires_grad_(), rows(7, 2, 4).requires_grad_()
    pairwise_loss(features, plane, ALPHA).backward()
    step = 1e-6
    for moved, gradient in ((0, features.grad), (1, plane.grad)):
        assert gradient is not None and gradient.abs().max() > 1e-4
        for index in [(0, 0), (3, 1), (6, 0)]:
            values = []
            for sign in (1, -1):
                inputs = [features.detach().clone(), plane.detach().clone()]
                inputs[moved][index] += sign * step
                values.append(plain_pairwise_loss(*inputs, ALPHA))
            assert float(gradient[index]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-9)
    assert torch.autograd.gradcheck(lambda f, z: pairwise_loss(f, z, ALPHA), (features, plane))


def test_the_quantisation_loss_moves_codes_and_places_apart_from_each_other() -> None:
    plane, codebook = rows(6, 2, 5).requires_grad_(), rows(3, 2, 6).requires_grad_()
    loss = quantisation_loss(plane, codebook, BETA)
    nearest = [min(range(3), key=lambda k: float((z - codebook[k]).detach().square().sum())) for z in plane]
    squared = sum(float((plane[n] - codebook[k]).detach().square().sum()) for n, k in enumerate(nearest)) / 12
    assert loss.item() == pytest.approx((1 + BETA) * squared)
    loss.backward()
    difference = (plane - codebook[nearest]).detach()
    assert plane.grad is not None and codebook.grad is not None
    assert torch.allclose(plane.grad, 2 * BETA * difference / 12)
    for k in range(3):
        mine = [n for n, code in enumerate(nearest) if code == k]
        assert torch.allclose(codebook.grad[k], -2 * difference[mine].sum(0) / 12)


def test_perplexity_counts_codes_in_use_and_dead_ones_move_to_states() -> None:
    assert perplexity(torch.tensor([5, 5, 5, 5])) == pytest.approx(4)
    assert perplexity(torch.tensor([9, 0, 0, 0])) == pytest.approx(1)
    plane = torch.cat([rows(100, 2, 7), rows(100, 2, 8) + 20])
    codebook = torch.tensor([[0.0, 0.0], [20.0, 20.0], [-90.0, 0.0], [99.0, 99.0]], dtype=torch.float64)
    before = codebook.clone()
    moved = restart_dead_codes(codebook, plane, torch.Generator().manual_seed(0))
    assert moved.tolist() == [2, 3] and torch.equal(codebook[:2], before[:2])
    assert all((plane == codebook[code]).all(dim=1).any() for code in (2, 3)) and not codebook[2].equal(codebook[3])
    assert not len(restart_dead_codes(codebook, plane, torch.Generator().manual_seed(0)))
    assert not len(restart_dead_codes(codebook, plane[:3], torch.Generator())), "too few states to tell"


def test_the_module_maps_linearly_and_feeds_the_nearest_code() -> None:
    torch.manual_seed(0)
    module = SemanticModule(5, SemanticShape(4, 3)).double()
    hidden = rows(6, 5, 1)
    plane = module.plane(hidden)
    assert plane.shape == (6, 3) and module.codebook.abs().max() <= 1 / 4
    middle = module.plane((hidden[:1] + hidden[1:2]) / 2)
    assert torch.allclose(middle, (plane[:1] + plane[1:2]) / 2), "the map should have no activation"
    codes = module.nearest(plane)
    assert [int((z - module.codebook).square().sum(1).argmin()) for z in plane.detach()] == codes.tolist()
    assert torch.equal(module.code(plane).argmax(1), codes) and torch.equal(module.code(plane).sum(1), torch.ones(6))
    assert torch.equal(module.fed(module.code(plane)), codes.double().unsqueeze(1) / 4)
    embedding = SemanticModule(5, SemanticShape(4, 2, "embedding")).double()
    assert not embedding.fed(embedding.code(plane[:, :2])).any(), "an embedding starts at zero"
    with torch.no_grad():
        embedding.embedding.copy_(rows(4, 5, 2))
    assert torch.equal(embedding.fed(torch.eye(4, dtype=torch.float64)[[2]]), embedding.embedding[[2]])
