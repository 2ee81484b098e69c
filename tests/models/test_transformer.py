"""The transformer against torch's own encoder layers, row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from otafl.core.contracts import Batch
from otafl.core.errors import UserError
from otafl.losses.cross_entropy import NextToken
from otafl.models.transformer import Transformer

pytestmark = pytest.mark.exact

ROWS, SAMPLES, CLASSES = 3, 4, 5
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "class token": ({"patch": 3}, (2, 6, 9)),
    "next tokens": ({"input": "tokens"}, (7,)),
    "vectors": ({"input": "vectors"}, (34, 3)),
}


def make(case: str) -> Transformer:
    keys, shape = CASES[case]
    settings = Transformer.Settings(depth=2, width=12, heads=3, mlp_ratio=1.5, **keys)
    model = Transformer(settings, shape, CLASSES)
    if model.scores_positions:
        model.loss = NextToken()
    return model


def draw(model: Transformer, case: str) -> tuple[dict[str, Tensor], Batch]:
    generator = torch.Generator().manual_seed(4)
    params = {
        name: 0.5 * torch.randn(ROWS, *shape, dtype=torch.float64, generator=generator)
        for name, shape in model.shapes.items()
    }
    shape = (ROWS, SAMPLES, *CASES[case][1])
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    if model.settings.input == "tokens":
        x = torch.randint(model.shapes["embedding"][0], shape, generator=generator).double()
    ends = (ROWS, SAMPLES, *(CASES[case][1] if model.scores_positions else ()))
    return params, Batch(x, torch.randint(CLASSES, ends, generator=generator), None)


def compute_torch_scores(model: Transformer, own: dict[str, Tensor], x: Tensor) -> Tensor:
    """Scores of one row by torch's encoder, `own` being leaves of its parameters."""
    settings = model.settings
    if settings.input == "tokens":
        states = own["embedding"][x.long()]
    elif settings.input == "images":
        side = settings.patch
        kernel = own["patch"].T.unflatten(1, (-1, side, side))
        images = x.reshape(len(x), *model.image)
        convolved = nn.functional.conv2d(images, kernel, own["patch_bias"], stride=side)
        states = convolved.flatten(2).mT
    else:
        states = x @ own["input"] + own["input_bias"]
    if "class_token" in own:
        states = torch.cat([own["class_token"].expand(len(x), 1, -1), states], 1)
    states = states + own["positions"]
    t = states.shape[1]
    mask = None
    if model.scores_positions:
        mask = nn.Transformer.generate_square_subsequent_mask(t).double()
    for block in range(settings.depth):
        layer = nn.TransformerEncoderLayer(
            *(settings.width, settings.heads, model.inner, 0.0),
            activation="gelu",
            batch_first=True,
            norm_first=True,
            dtype=torch.float64,
        )
        names = {part: f"block{block}.{part}" for part in ("query", "key", "value", "output")}
        attended = [own[names[part]].T for part in ("query", "key", "value")]
        biases = [own[f"{names[part]}_bias"] for part in ("query", "key", "value")]
        state = {
            "self_attn.in_proj_weight": torch.cat(attended),
            "self_attn.in_proj_bias": torch.cat(biases),
            "self_attn.out_proj.weight": own[names["output"]].T,
            "self_attn.out_proj.bias": own[f"{names['output']}_bias"],
        }
        for number, part in (("1", "up"), ("2", "down")):
            state[f"linear{number}.weight"] = own[f"block{block}.{part}"].T
            state[f"linear{number}.bias"] = own[f"block{block}.{part}_bias"]
            state[f"norm{number}.weight"] = own[f"block{block}.norm{number}"]
            state[f"norm{number}.bias"] = own[f"block{block}.norm{number}_bias"]
        states = torch.func.functional_call(layer, state, (states,), {"src_mask": mask})
    states = nn.functional.layer_norm(states, (settings.width,), own["norm"], own["norm_bias"])
    states = states if model.scores_positions else states[:, 0]
    return states @ own["head"] + own["head_bias"]


@pytest.mark.parametrize("case", CASES)
def test_scores_and_gradients_are_those_of_torchs_encoder(case: str) -> None:
    model = make(case)
    params, batch = draw(model, case)
    scores = model.logits(params, batch.x)
    loss, grads = model.compute_gradients(params, batch)
    for row in range(ROWS):
        own = {name: block[row].clone().requires_grad_() for name, block in params.items()}
        expected = compute_torch_scores(model, own, batch.x[row])
        torch.testing.assert_close(scores[row], expected, rtol=1e-9, atol=1e-9)
        value = model.loss.compute_mean(expected[None], Batch(batch.x, batch.y[row][None], None))
        torch.testing.assert_close(loss[row], value[0])
        by_name = torch.autograd.grad(value.sum(), list(own.values()))
        for name, grad in zip(own, by_name, strict=True):
            torch.testing.assert_close(grads[name][row], grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"width": 10, "heads": 3}, "width: got 10; must be a multiple of heads, 3"),
        ({"input": "vectors", "patch": 3}, "patch: only for input: images, and input is vectors"),
    ],
)
def test_settings_that_do_not_fit_are_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Transformer.Settings(**keys)


@pytest.mark.parametrize(
    ("keys", "shape", "text"),
    [
        ({}, (64,), "got 7, but images of 8x8 pixels have no such patches; use 1, 2, 4 or 8"),
        ({}, (3, 5), r"images of 3x5 pixels have no such patches; use 1"),
        ({}, (3,), "needs images of shape"),
        ({"input": "tokens"}, (4, 4), "needs sequences of tokens"),
        ({"input": "vectors"}, (1, 4, 4), "'transformer' needs sequences of shape"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    keys: dict[str, Any], shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        Transformer(Transformer.Settings(**keys), shape, CLASSES)


def test_start() -> None:
    """Variance 1 / fan_in of weights, 0.02 of positions, ones and zeros of norms and biases."""
    model = Transformer(Transformer.Settings(), (28, 28), 10)
    generator = torch.Generator().manual_seed(6)
    params = model.init(lambda name, shape: torch.rand(2, *shape, generator=generator))
    assert model.num_params == sum(block[0].numel() for block in params.values()) == 139_018
    for name in model.linear_weights:
        fan_in = model.linear_weights[name][0] * (3 if name == "head" else 1)
        assert float(params[name].square().mean() * fan_in) == pytest.approx(1.0, rel=0.1)
    assert float(params["positions"].std()) == pytest.approx(0.02, rel=0.1)
    assert all(bool((params[name] == float("bias" not in name)).all()) for name in model.norms)
