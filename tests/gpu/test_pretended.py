"""The pretended GPU refuses and notes what a GPU would."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from support.pretended import MAKES, READS, SENDS, Processor, use_processor
from torch import Tensor

from otafl.engine import assembly


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processor]:
    with use_processor(monkeypatch) as mode, torch.inference_mode():
        yield mode


def there(*shape: int) -> Tensor:
    return torch.ones(shape, device=assembly.select_torch_device("cuda"))


def noted(one: Processor, act: Callable[[Tensor], object]) -> set[str]:
    value = there(3, 4)
    one.noted.clear()
    act(value)
    return {what for what, _, _ in one.noted}


@pytest.mark.parametrize(
    "act",
    [
        lambda v: v[0, 0].item(),
        lambda v: v.cpu(),
        lambda v: bool((v > 0).all()),
        lambda v: v.nonzero(),
        lambda v: v[v > 0],
        lambda v: v.repeat_interleave(v[0].long(), 1),
        lambda v: torch.linalg.cholesky(v @ v.mT + torch.eye(3, device=v.device)),
    ],
)
def test_reads(one: Processor, act: Callable[[Tensor], object]) -> None:
    assert READS in noted(one, act)


@pytest.mark.parametrize(
    "act",
    [
        lambda v: torch.from_numpy(np.ones(4)).to(v),
        lambda v: v.new_tensor([1.0, 2.0]),
        lambda v: v[[0, 2]],
        lambda v: v.copy_(torch.from_numpy(np.ones((3, 4)))),
    ],
)
def test_sends(one: Processor, act: Callable[[Tensor], object]) -> None:
    assert SENDS in noted(one, act)


@pytest.mark.parametrize(
    "act", [lambda v: torch.zeros(2), lambda v: torch.arange(2), lambda v: torch.randn(2)]
)
def test_makes(one: Processor, act: Callable[[Tensor], object]) -> None:
    assert noted(one, act) == {MAKES}


@pytest.mark.parametrize(
    "act",
    [
        lambda v: v @ v.mT + 2.0,
        lambda v: v[:, 1:3].mul_(2.0),
        lambda v: torch.zeros_like(v).index_copy_(0, torch.arange(3, device=v.device), v),
        lambda v: v.repeat_interleave(v[0].long(), 1, output_size=4),
    ],
)
def test_nothing(one: Processor, act: Callable[[Tensor], object]) -> None:
    assert noted(one, act) == set()


@pytest.mark.parametrize(
    "act",
    [
        lambda v: v + torch.ones(4),
        lambda v: torch.cat([v, torch.ones(1, 4)]),
        lambda v: np.asarray(v),
    ],
)
def test_refuses(one: Processor, act: Callable[[Tensor], object]) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        act(there(3, 4))


def test_numbers_are_the_hosts(one: Processor) -> None:
    value = there(3, 4)
    value[:, 1:3].mul_(2.0)
    h = torch.complex(value, 3.0 * value)
    product = (h.conj() * h).real.sum(1) + h.conj().imag[:, 0]
    assert product.cpu().tolist() == [97.0, 97.0, 97.0]
    assert value.device.type != "cpu"
    assert value.is_cuda
