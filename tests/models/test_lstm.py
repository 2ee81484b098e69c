"""The LSTM against torch.nn.LSTM with the same weights, and what its classifier reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from otafl.core.contracts import Batch, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models.linear_layer import LEAKY_SLOPE
from otafl.models.lstm import Lstm

pytestmark = pytest.mark.exact

F64 = torch.float64
N, B, LENGTH, FEATURES, CLASSES = 3, 4, 6, 5, 2
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-12}
SETTINGS = [
    Lstm.Settings(hidden=2, layers=1, classifier=()),
    Lstm.Settings(hidden=4, classifier=(7, 3), bidirectional=True),
]


def uniform(name: str, shape: tuple[int, ...]) -> Tensor:
    return Streams([4] * N, list(range(N)), dtype=F64).draw_uniform(f"init/{name}", 0, shape)


def built(settings: Lstm.Settings) -> tuple[Lstm, Tensors, Batch]:
    model = Lstm(settings, (LENGTH, FEATURES), CLASSES)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, B, LENGTH, FEATURES, generator=generator, dtype=F64)
    y = torch.randint(CLASSES, (N, B), generator=generator)
    weight = torch.rand(N, B, generator=generator, dtype=F64)
    return model, model.init(uniform), Batch(x, y, weight / weight.sum(1, keepdim=True))


def torchs(
    settings: Lstm.Settings, params: Tensors, row: int
) -> tuple[torch.nn.LSTM, dict[str, Tensor]]:
    """torch's LSTM with the parameters of a row, which are named there, and leaves of both."""
    module = torch.nn.LSTM(
        FEATURES,
        settings.hidden,
        settings.layers,
        batch_first=True,
        bidirectional=settings.bidirectional,
    ).double()
    leaves = {name: value[row].clone().requires_grad_() for name, value in params.items()}
    kinds = {
        "weight_ih": "input",
        "weight_hh": "hidden",
        "bias_ih": "input_bias",
        "bias_hh": "hidden_bias",
    }
    own = {}
    for layer in range(settings.layers):
        for theirs, ours in kinds.items():
            for end, way in (("", "ahead"), ("_reverse", "back"))[: 1 + settings.bidirectional]:
                value = leaves[f"{ours}{layer}_{way}"]
                own[f"{theirs}_l{layer}{end}"] = value.mT if value.dim() == 2 else value
    assert {name: p.shape for name, p in module.named_parameters()} == {
        name: value.shape for name, value in own.items()
    }
    return module, leaves | {f"torch/{name}": value for name, value in own.items()}


def scores(settings: Lstm.Settings, params: Tensors, row: int, x: Tensor) -> tuple[Tensor, Tensors]:
    """One row's scores by torch's LSTM and the reading of Shi et al.'s code, and the leaves."""
    module, leaves = torchs(settings, params, row)
    own = {k.removeprefix("torch/"): v for k, v in leaves.items() if k.startswith("torch/")}
    out, (hidden, _) = torch.func.functional_call(module, own, (x,))
    read = hidden[-1]
    if settings.bidirectional:
        h = settings.hidden
        read = torch.cat([out[:, -1, :h], out[:, -1, h:], hidden[-1], hidden[-2]], -1)
    last = len(settings.classifier)
    for i in range(last + 1):
        read = read @ leaves[f"weight{i}"] + leaves[f"bias{i}"]
        if i < last:
            read = functional.leaky_relu(read, LEAKY_SLOPE)
    return read, {k: v for k, v in leaves.items() if not k.startswith("torch/")}


@pytest.mark.parametrize("settings", SETTINGS)
def test_equals_torchs_lstm_forwards_and_backwards(settings: Lstm.Settings) -> None:
    model, params, batch = built(settings)
    logits = model.logits(params, batch.x)
    loss, grads = model.compute_gradients(params, batch)
    assert batch.weight is not None
    for row in range(N):
        expected, leaves = scores(settings, params, row, batch.x[row])
        torch.testing.assert_close(logits[row], expected, **CLOSE)
        at = slice(row, row + 1)
        value = CrossEntropy().compute_mean(
            expected[None], Batch(batch.x, batch.y[at], batch.weight[at])
        )
        torch.testing.assert_close(loss[at], value.detach(), **CLOSE)
        by = torch.autograd.grad(value.sum(), list(leaves.values()))
        for name, grad in zip(leaves, by, strict=True):
            torch.testing.assert_close(grads[name][row], grad, **CLOSE)


def test_counts_of_the_paper_and_of_its_code() -> None:
    """Words of 50 numbers, 50 units, two layers: torch's 40,800 parameters in one direction (both
    biases), classifiers 50-100-2 and 200-5000-2."""
    paper = Lstm(Lstm.Settings(), (25, 50), 2)
    assert paper.num_params == 2 * (50 * 200 + 50 * 200 + 2 * 200) + 50 * 100 + 100 + 100 * 2 + 2
    code = Lstm(Lstm.Settings(bidirectional=True, classifier=(5000,)), (25, 50), 2)
    recurrent = 2 * (50 * 200 + 50 * 200 + 400) + 2 * (100 * 200 + 50 * 200 + 400)
    assert code.num_params == recurrent + 200 * 5000 + 5000 + 5000 * 2 + 2
    module = torch.nn.LSTM(50, 50, 2, bidirectional=True)
    assert recurrent == sum(p.numel() for p in module.parameters())


def test_images_are_refused() -> None:
    with pytest.raises(UserError, match=r"'lstm' needs sequences.*\[3, 32, 32\]"):
        Lstm(Lstm.Settings(), (3, 32, 32), 10)
