"""Models of token sequences against plain loops, and they see only the past."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from otafl.core.errors import UserError
from otafl.models.base import Model
from otafl.models.lstm import TokenLstm
from otafl.models.ngram import NGram
from otafl.models.transformer import Transformer

pytestmark = pytest.mark.exact

ROWS, BATCH, LENGTH, TOKENS = 2, 3, 6, 5
MODELS: dict[str, Model] = {
    "ngram": NGram(NGram.Settings(context=2, hidden=(7,)), (LENGTH,), TOKENS),
    "token_lstm": TokenLstm(TokenLstm.Settings(embedding=3, hidden=4, layers=2), (LENGTH,), TOKENS),
    "transformer": Transformer(
        Transformer.Settings(input="tokens", depth=2, width=4, heads=2), (LENGTH,), TOKENS
    ),
}


def draw(model: Model) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    params = {
        name: 0.5 * torch.randn(ROWS, *shape, dtype=torch.float64, generator=generator)
        for name, shape in model.shapes.items()
    }
    x = torch.randint(TOKENS, (ROWS, BATCH, LENGTH), generator=generator).double()
    return params, x


@pytest.mark.parametrize("name", MODELS)
def test_a_position_sees_the_past_alone(name: str) -> None:
    model = MODELS[name]
    params, x = draw(model)
    scores = model.logits(params, x)
    assert scores.shape == (ROWS, BATCH, LENGTH, TOKENS)
    changed = x.clone()
    changed[:, :, 4] = (changed[:, :, 4] + 1) % TOKENS
    other = model.logits(params, changed)
    torch.testing.assert_close(other[:, :, :4], scores[:, :, :4])
    assert not torch.allclose(other[:, :, 4], scores[:, :, 4])


def test_ngram_twin() -> None:
    """A context of two: the token and the one before it, one-hot side by side."""
    model = MODELS["ngram"]
    params, x = draw(model)
    scores = model.logits(params, x)
    for row, sample, at in ((0, 1, 3), (1, 2, 0)):
        seen = torch.zeros(2 * TOKENS, dtype=torch.float64)
        seen[int(x[row, sample, at])] = 1.0
        if at:
            seen[TOKENS + int(x[row, sample, at - 1])] = 1.0
        hidden = (seen @ params["weight0"][row] + params["bias0"][row]).relu()
        wanted = hidden @ params["weight1"][row] + params["bias1"][row]
        torch.testing.assert_close(scores[row, sample, at], wanted)


def test_token_lstm_is_torchs() -> None:
    model = MODELS["token_lstm"]
    params, x = draw(model)
    scores = model.logits(params, x)
    for row in range(ROWS):
        lstm = torch.nn.LSTM(3, 4, 2, batch_first=True).double()
        state = {}
        for layer in (0, 1):
            state[f"weight_ih_l{layer}"] = params[f"input{layer}"][row].T
            state[f"weight_hh_l{layer}"] = params[f"hidden{layer}"][row].T
            state[f"bias_ih_l{layer}"] = params[f"input_bias{layer}"][row]
            state[f"bias_hh_l{layer}"] = params[f"hidden_bias{layer}"][row]
        lstm.load_state_dict(state)
        states, _ = lstm(params["embedding"][row][x[row].long()])
        wanted = states @ params["weight0"][row] + params["bias0"][row]
        torch.testing.assert_close(scores[row], wanted)


@pytest.mark.parametrize(
    "kind",
    [
        lambda shape: NGram(NGram.Settings(), shape, 3),
        lambda s: TokenLstm(TokenLstm.Settings(), s, 3),
    ],
)
def test_other_samples_are_refused(kind: Any) -> None:
    with pytest.raises(UserError, match="needs sequences of tokens"):
        kind((3, 4))
