"""Every method learns by its defaults: a scenario of ten lines that names it and its local steps.

A method that is registered is tested; nothing here names one, except what cannot learn (FedRLR's
global model, a product of two superposed sums) and a model with layers to normalise (FedBN).

Mutations that make a test here fail: FedRLR's q of 2 or its 1/K on the gradient, a step of 0.002 of
methods that send the model, an l1 weight of 0.02: the paper's, for pixels from 0 to 255.
"""

from __future__ import annotations

import pytest
from contract.small import ALGORITHMS, delivers

import otafl
from otafl.analysis import chance
from otafl.results.ending import ended
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.slow

TEN_LINES = """\
name: ten_lines
data: digits
model: {model}
algorithm: {algorithm}
channel: {{name: rayleigh, snr_db: 20}}
transport: {transport}
training:
  rounds: 100
  local_steps: 10
  eval_every: 100
"""
MODELS = {"fedbn": "{name: 'contract.small:normed', hidden: [100]}"}
FROM_RAW_PIXELS = ("fedrlr", "fedmid", "prox_sgd", "magnitude_pruning")
"""Methods whose paper has pixels from 0 to 255: also tried over the air."""
NOT_LEARNING = {"fedrlr": "test_accuracy"}


@pytest.mark.parametrize(
    ("algorithm", "transport"),
    [
        *((name, "ideal") for name in ALGORITHMS),
        *((name, "over_the_air") for name in FROM_RAW_PIXELS),
    ],
)
def test_what_a_method_trains_is_above_60_percent(algorithm: str, transport: str) -> None:
    assert delivers(transport, algorithm)
    model = MODELS.get(algorithm, "mlp")
    text = TEN_LINES.format(model=model, algorithm=algorithm, transport=transport)
    assert len(text.splitlines()) == 10
    result = otafl.run(otafl.load_scenario(parse(text).data))
    trained = [name for name in chance.judge(result) if name != NOT_LEARNING.get(algorithm)]
    assert trained
    for name in trained:
        assert float(ended(result, name).mean()) > 0.6, name
    said = chance.describe(result)
    assert ("the learning shows in local_test_accuracy" in said) == (algorithm == "fedrlr"), said
