"""A training step of ten devices on a transformer that they share, with adapters of rank 4: against
torch.func.vmap, and against the matrix products that it needs. Torch's fused attention against two
products.

    OMP_NUM_THREADS=1 python benchmarks/adapters.py > benchmarks/adapters.md
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from page import name_machine
from timing import Pair, side_by_side
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from otafl.core.contracts import Batch, Tensors
from otafl.models.linear_layer import apply
from otafl.models.transformer import Transformer, TransformerModule

DEVICES, SAMPLES, RANK, SIDE, CLASSES = 10, 20, 4, 28, 10
PAIRS = 15
ADAPTED = ("query", "value")


class Adapter:
    """Weight W + A B with W [1, M, N] of all devices and A [n, M, R], B [n, R, N] of each."""

    def __init__(self, shared: Tensor, a: Tensor, b: Tensor) -> None:
        self.shared, self.a, self.b = shared, a, b

    def forward(self, x: Tensor) -> Tensor:
        thin = torch.bmm(torch.bmm(x.expand(len(self.a), -1, -1), self.a), self.b)
        return apply(self.shared, x) + thin

    def backward(self, g: Tensor) -> Tensor:
        raise NotImplementedError


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Transformer(Transformer.Settings(), (SIDE, SIDE), CLASSES)
    shared = model.init(lambda name, shape: torch.rand(1, *shape))
    batch = Batch(
        torch.randn(DEVICES, SAMPLES, SIDE, SIDE),
        torch.randint(CLASSES, (DEVICES, SAMPLES)),
        None,
    )
    names = [name for name in model.linear_weights if name.split(".")[-1] in ADAPTED]
    factors = {
        name: (
            torch.randn(DEVICES, model.linear_weights[name][0], RANK) / RANK,
            torch.zeros(DEVICES, RANK, model.linear_weights[name][1]),
        )
        for name in names
    }
    ours = step_adapters(model, shared, factors, batch)
    print("# Adapters on a shared transformer\n")
    print("Made by `OMP_NUM_THREADS=1 python benchmarks/adapters.py`: things to compare are run in")
    print("turn; ratios of processor time are medians of the pairs, with their range.\n")
    print(f"{DEVICES} devices, {SAMPLES} images each, {model.num_params:,} weights, rank {RANK} on")
    print(f"{' and '.join(ADAPTED)}, one thread, {name_machine()}\n")
    print("| a step of all devices, compared with | ms | times as long as a shared backbone |")
    print("|---|---|---|")
    others: dict[str, Callable[[], object]] = {
        "torch.func.vmap over whole models": vmap_models(model, shared, batch),
        "torch.func.vmap over adapters": vmap_adapters(model, shared, factors, batch),
        "otafl, a whole model for each device": step_models(model, shared, batch),
        "the products of the shared weights only": list_products(model, batch),
    }
    fast = []
    for name, other in others.items():
        pair = compare(ours, other)
        fast.append(pair.fast_s)
        print(f"| {name} | {1e3 * pair.slow_s:.1f} | {show(pair)} |")
    print(
        f"\nA step with the shared backbone takes {1e3 * statistics.median(fast):.1f} ms. The last"
    )
    print("row has the products alone: its ratio is their share of the step.\n")
    print("| attention, samples x heads x positions x width | fused, ms | two products / fused |")
    print("|---|---|---|")
    for t in (10, 17, 32, 50, 65):
        pair = compare(attend(t, True), attend(t, False))
        print(f"| {DEVICES * SAMPLES} x 4 x {t} x 16 | {1e3 * pair.fast_s:.1f} | {show(pair)} |")


def compare(fast: Callable[[], object], slow: Callable[[], object]) -> Pair:
    """Times of one thread on the processor, which leave out what other programs take."""
    return side_by_side(fast, slow, PAIRS, time.process_time)


def show(pair: Pair) -> str:
    return f"{pair.ratio:.2f} ({pair.lowest:.2f} to {pair.highest:.2f})"


def step_adapters(
    model: Transformer, shared: Tensors, factors: dict[str, tuple[Tensor, Tensor]], batch: Batch
) -> Callable[[], object]:
    """Gradients of the adapters with one backbone for all devices."""

    def run() -> object:
        leaves = {n: tuple(one.requires_grad_() for one in pair) for n, pair in factors.items()}
        adapted: dict[str, Any] = {n: Adapter(shared[n], *pair) for n, pair in leaves.items()}
        scores = model.score_batch(shared | adapted, batch)
        loss = model.loss.compute_mean(scores, batch)
        return torch.autograd.grad(loss.sum(), [one for pair in leaves.values() for one in pair])

    return run


def step_models(model: Transformer, shared: Tensors, batch: Batch) -> Callable[[], object]:
    """Gradients of a whole model of each device, in batched products."""
    own = {name: one.expand(DEVICES, *one.shape[1:]).clone() for name, one in shared.items()}
    return lambda: model.compute_gradients(own, batch)


def build_module(model: Transformer, shared: Tensors) -> TransformerModule:
    module = model.build_module({name: one[0] for name, one in shared.items()}, model.image)
    assert isinstance(module, TransformerModule)
    return module


def vmap_models(model: Transformer, shared: Tensors, batch: Batch) -> Callable[[], object]:
    """Gradients of a whole model of each device, by torch.func."""
    module = build_module(model, shared)
    own = {
        name: one.detach().expand(DEVICES, *one.shape).clone()
        for name, one in module.named_parameters()
    }

    def compute_loss(params: Tensors, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(torch.func.functional_call(module, params, (x,)), y)

    return lambda: call_vmapped(compute_loss, own, batch)


def vmap_adapters(
    model: Transformer, shared: Tensors, factors: dict[str, tuple[Tensor, Tensor]], batch: Batch
) -> Callable[[], object]:
    """Gradients of the adapters of each device, by torch.func, which merges W + A B."""
    module = build_module(model, shared)
    frozen = {name: one.detach() for name, one in module.named_parameters()}
    paths = {name: f"layers.{name.replace('.', '_')}.weight" for name in factors}

    def compute_loss(own: dict[str, tuple[Tensor, Tensor]], x: Tensor, y: Tensor) -> Tensor:
        merged = {paths[n]: frozen[paths[n]] + (a @ b).mT for n, (a, b) in own.items()}
        return functional.cross_entropy(
            torch.func.functional_call(module, frozen | merged, (x,)), y
        )

    own = {name: tuple(one.detach() for one in pair) for name, pair in factors.items()}
    return lambda: call_vmapped(compute_loss, own, batch)


def call_vmapped(compute_loss: Callable[..., Tensor], own: Any, batch: Batch) -> object:
    """Gradients of each device's loss; vmap would loop over devices in fused attention."""
    with sdpa_kernel(SDPBackend.MATH):
        return torch.vmap(torch.func.grad(compute_loss))(own, batch.x, batch.y)


def list_products(model: Transformer, batch: Batch) -> Callable[[], object]:
    """The products with the shared weights, forward and by the inputs."""
    sides = list(_list_product_sides(model))
    pairs = [
        (torch.randn(rows, inputs), torch.randn(inputs, outputs), torch.randn(rows, outputs))
        for rows, inputs, outputs in sides
    ]

    def run() -> object:
        out = [torch.mm(x, w) for x, w, _ in pairs]
        return out, [torch.mm(g, w.mT) for _, w, g in pairs[1:]]

    return run


def _list_product_sides(model: Transformer) -> Iterator[tuple[int, int, int]]:
    for name, (inputs, outputs) in model.linear_weights.items():
        yield DEVICES * SAMPLES * model.positions[name], inputs, outputs


def attend(positions: int, fused: bool) -> Callable[[], object]:
    """Attention forward and backward."""
    shape = DEVICES * SAMPLES, positions, 4, 16
    q, k, v = (torch.randn(shape).transpose(1, 2).requires_grad_() for _ in range(3))
    g = torch.randn(shape).transpose(1, 2)

    def run() -> object:
        if fused:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = torch.matmul(torch.matmul(q, k.mT).mul_(0.25).softmax(-1), v)
        return torch.autograd.grad(mixed, (q, k, v), g)

    return run


if __name__ == "__main__":
    main()
