"""Looking a convolution's results up is the same function as convolving, and has the same gradients."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from agent_zoo.network_parts.tiles import SumsOfRows, TileConvolution, convolved, looked_up
from agent_zoo.observation import ObservationLayout

MATERIAL_UNITS = 6


@pytest.mark.parametrize("place_units", [0, 2])
@pytest.mark.parametrize("side", [7, 15])
def test_looking_up_equals_describing_and_convolving(layout: ObservationLayout, place_units: int, side: int) -> None:
    torch.manual_seed(side)
    layer = TileConvolution(replace(layout, tiles=side**2), place_units, MATERIAL_UNITS, channels=5).double()
    material = torch.randint(0, layout.materials, (9, side**2), dtype=torch.uint8)
    vectors = torch.randn(layout.materials, MATERIAL_UNITS, dtype=torch.float64, requires_grad=True)
    places = torch.randn(place_units, side, side, dtype=torch.float64, requires_grad=True)
    inputs = [vectors, *([places] if place_units else []), *layer.parameters()]

    described = vectors[material.long()].view(-1, side, side, MATERIAL_UNITS).permute(0, 3, 1, 2)
    planes = torch.cat([places.expand(len(material), -1, -1, -1), described], dim=1)
    expected = functional.conv2d(planes, layer.convolution.weight, layer.convolution.bias)
    result = layer(material, vectors, places)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)

    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((weights * case).sum(), inputs) for case in (result, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_accelerators_convolve_to_the_same() -> None:
    random = torch.Generator().manual_seed(0)
    views = torch.randint(0, 16, (4, 15, 15), dtype=torch.uint8, generator=random)
    kernel = torch.randn(3, 3, 16, 5, dtype=torch.float64, generator=random)
    place_map = torch.randn(5, 13, 13, dtype=torch.float64, generator=random)
    result, expected = looked_up(views, kernel, place_map), convolved(views, kernel, place_map)
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


def test_sums_of_rows_have_the_gradient_of_their_definition_and_none_without_rows() -> None:
    torch.manual_seed(0)
    table = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([[0, 0], [4, 1], [1, 0], [4, 4]], dtype=torch.int32)
    torch.testing.assert_close(SumsOfRows.apply(table, rows), table[rows.long()].sum(dim=1))
    assert torch.autograd.gradcheck(lambda item: SumsOfRows.apply(item, rows), (table,))
    table = torch.randn(5, 3, requires_grad=True)
    sums = SumsOfRows.apply(table, torch.zeros(0, 4, dtype=torch.int32))
    sums.sum().backward()
    assert sums.shape == (0, 3) and table.grad is not None and not table.grad.any()
