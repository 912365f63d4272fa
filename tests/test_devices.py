"""Threads: one while a run is made, and as many as before afterwards."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from abc_nb.common import devices


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_threads_are_given_back_however_the_work_ends(error: type[BaseException] | None) -> None:
    with suppress(ValueError, KeyboardInterrupt), devices.one_thread():
        assert torch.get_num_threads() == 1
        if error is not None:
            raise error
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_matrix_products_may_be_less_exact_on_a_gpu_alone_and_only_in_training(where: str) -> None:
    before = torch.get_float32_matmul_precision()
    with suppress(ValueError), devices.tensor_cores(torch.device(where)):
        assert torch.get_float32_matmul_precision() == ("high" if where == "cuda" else before)
        raise ValueError
    assert torch.get_float32_matmul_precision() == before
