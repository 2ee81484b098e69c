"""Numbers that the host knows are sent once."""

from __future__ import annotations

import pytest
import torch

from otafl.core.tensors import get_constant

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
