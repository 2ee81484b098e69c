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


def counted(one: Processor, act: Callable[[Tensor], object]) -> set[str]:
    value = there(3, 4)
    one.count.clear()
    act(value)
    return set(one.count)


ACTS: list[tuple[set[str], Callable[[Tensor], object]]] = [
    ({READS}, lambda v: v[0, 0].item()),
    ({READS}, lambda v: bool((v > 0).all())),
    ({READS}, lambda v: v.nonzero()),
    ({READS}, lambda v: v.repeat_interleave(v[0].long(), 1)),
    ({READS}, lambda v: v[v > 0]),
    ({SENDS}, lambda v: v.new_tensor([1.0, 2.0])),
    ({SENDS}, lambda v: torch.from_numpy(np.ones(4)).to(v)),
    ({MAKES}, lambda v: torch.zeros(2)),
    (set(), lambda v: v @ v.mT + 2.0),
    (set(), lambda v: v[:, 1:3].mul_(2.0)),
    (set(), lambda v: v.repeat_interleave(v[0].long(), 1, output_size=4)),
]


def test_it_notes_what_a_gpu_is_waited_for(one: Processor) -> None:
    assert [counted(one, act) for _, act in ACTS] == [wanted for wanted, _ in ACTS]


def test_it_refuses_tensors_of_the_host(one: Processor) -> None:
    for act in (lambda v: v + torch.ones(4), lambda v: np.asarray(v)):
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
