"""Operations of factored convolutions: formulas of methods against what torch counts.

The simulation forms a dense kernel of a factored convolution, which a device does not. Here a twin
multiplies the patches of images by the factors, as the papers' devices do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from otafl.core import registry
from otafl.core.contracts import Workload
from otafl.models.cnn import Cnn
from otafl.models.layers import Conv

pytestmark = pytest.mark.exact

B, RANK = 5, 3
MODEL = Cnn(Cnn.Settings(channels=(4, 6), kernel=3, hidden=(7,)), (2, 9, 8), 5)

Act = Callable[[int, Tensor, Tensor], Tensor]
"""Number of a layer, its inputs [.., M] and weight [M, N] -> outputs [.., N]."""


def draw(*shape: int, trained: bool = True) -> Tensor:
    return torch.rand(shape).requires_grad_(trained)


def make_fedrlr() -> tuple[Act, list[Tensor]]:
    """x U S V^T."""
    sides = [(one.inputs, one.outputs) for one in MODEL.layers]
    points = [(draw(m, RANK), draw(RANK), draw(n, RANK)) for m, n in sides]

    def act(number: int, x: Tensor, weight: Tensor) -> Tensor:
        u, s, v = points[number]
        return ((x @ u) * s) @ v.mT

    return act, [one for point in points for one in point]


def make_fedrlr_plus() -> tuple[Act, list[Tensor]]:
    """x (U S V^T + A V^T + U B^T), of which A and B are trained, and the bias is a row."""
    sides = [(one.inputs + 1, one.outputs) for one in MODEL.layers]
    fixed = [(draw(m, RANK, trained=False), draw(n, RANK, trained=False)) for m, n in sides]
    moved = [(draw(m, RANK), draw(n, RANK)) for m, n in sides]

    def act(number: int, x: Tensor, weight: Tensor) -> Tensor:
        (u, v), (a, b) = fixed[number], moved[number]
        x = torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)
        return (x @ u) @ (v + b).mT + (x @ a) @ v.mT

    return act, [one for pair in moved for one in pair]


def make_lora(mode: str) -> Callable[[], tuple[Act, list[Tensor]]]:
    """x (W + A^T B^T) with a frozen W; the last layer is trained whole."""

    def make() -> tuple[Act, list[Tensor]]:
        *front, last = MODEL.layers
        a = [draw(RANK, one.inputs, trained=mode == "both") for one in front]
        b = [draw(one.outputs, RANK) for one in front]
        head = draw(last.inputs, last.outputs)

        def act(number: int, x: Tensor, weight: Tensor) -> Tensor:
            if number == len(front):
                return x @ head
            return x @ weight + (x @ a[number].mT) @ b[number].mT

        return act, [head, *b, *(a if mode == "both" else [])]

    return make


def count_products(act: Act, trained: list[Tensor]) -> int:
    """Count the products of a gradient of B samples."""
    x = torch.rand(B, *MODEL.image)
    with FlopCounterMode(display=False) as counter:
        for number, layer in enumerate(MODEL.layers):
            weight = torch.rand(layer.inputs, layer.outputs)
            if isinstance(layer, Conv):
                sides = layer.count((layer.channels, *x.shape[2:]), "vertical_first").image[1:]
                patches = functional.unfold(x, layer.kernel, 1, layer.padding, layer.stride)
                z = act(number, patches.mT, weight).mT.unflatten(2, sides)
                x = functional.relu(functional.max_pool2d(z, 2))
            else:
                x = act(number, x.flatten(1), weight)
        torch.autograd.grad(x.sum(), trained)
    return counter.get_total_flops()


CASES: dict[str, tuple[Callable[[], tuple[Act, list[Tensor]]], dict[str, Any]]] = {
    "fedrlr": (make_fedrlr, {}),
    "fedrlr_plus": (make_fedrlr_plus, {}),
    "lora": (make_lora("both"), {}),
    "lora freeze_a": (make_lora("freeze_a"), {"mode": "freeze_a"}),
}


@pytest.mark.parametrize("case", CASES)
def test_products_are_counted(case: str) -> None:
    make, keys = CASES[case]
    name = case.partition(" ")[0]
    settings = registry.load_settings_class("algorithm", name).model_validate(
        {"name": name, "rank": RANK, **keys}
    )
    method = registry.load_component("algorithm", name)(settings, MODEL, 2)
    one, two = (method.count_flops(Workload(1, size, np.array(100.0))) for size in (B, 2 * B))
    of_samples = float(two - one) - 2.0 * MODEL.elementwise * B
    assert count_products(*make()) == of_samples
