"""Products of matrices by another library, at the same precision."""

import pytest
import torch

from analysis import matrix_products
from analysis.matrix_products import fast_products

SETTING = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def slow_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all processors switch, as AMD's do."""
    monkeypatch.setattr(matrix_products, "_mkl_is_slow", lambda: True)


def test_products_are_as_precise_and_the_setting_ends_with_the_block() -> None:
    left, right = torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(0)).unbind()
    with fast_products():
        product = left @ right
    # Rounding moves a sum by at most so many units of its terms' sizes; those of bfloat16 are 65,536 times as large.
    bound = 300 * torch.finfo(torch.float32).eps * (left.abs().double() @ right.abs().double())
    assert ((product.double() - left.double() @ right.double()).abs() <= bound).all()
    before = SETTING.fp32_precision
    with fast_products() as fast:
        assert SETTING.fp32_precision == ("bf16" if fast else before)
    assert SETTING.fp32_precision == before
    with pytest.raises(RuntimeError), fast_products():
        raise RuntimeError
    assert SETTING.fp32_precision == before
    assert matrix_products._exact()
    with torch.autocast("cpu", torch.bfloat16):
        assert not matrix_products._exact()


def test_a_processor_that_rounds_to_bfloat16_keeps_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SETTING.fp32_precision
    for exact in (False, True):
        monkeypatch.setattr(matrix_products, "_exact", lambda exact=exact: exact)
        with fast_products() as fast:
            assert fast == exact and (SETTING.fp32_precision == before) == (not exact)
