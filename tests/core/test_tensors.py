"""Numbers that the host knows are sent once, and rows are multiplied by their matrices."""

from __future__ import annotations

import pytest
import torch

from otafl.core.tensors import get_constant, multiply_rows

pytestmark = pytest.mark.exact
CPU = torch.device("cpu")


def test_it_is_the_same_tensor_again() -> None:
    one = get_constant((1, 2.5), torch.float64, CPU)
    assert torch.equal(one, torch.tensor([1.0, 2.5], dtype=torch.float64))
    assert get_constant((1, 2.5), torch.float64, CPU) is one
    assert get_constant((1, 2.5), torch.float32, CPU).dtype is torch.float32


def test_gradients_pass_it_even_if_a_round_made_it() -> None:
    with torch.inference_mode():
        made = get_constant(4.75, torch.float32, CPU)
    x = torch.ones((), requires_grad=True)
    (x * made).backward()
    assert x.grad == 4.75


@pytest.mark.parametrize("num_inputs", [1, 3])
def test_each_row_multiplies_its_own_or_the_common_inputs(num_inputs: int) -> None:
    x = torch.arange(num_inputs * 8.0).view(num_inputs, 4, 2)
    weight = torch.arange(18.0).view(3, 2, 3)
    expected = [x[row % num_inputs] @ weight[row] for row in range(3)]
    assert torch.equal(multiply_rows(x, weight), torch.stack(expected))
