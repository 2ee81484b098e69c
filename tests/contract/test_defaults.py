"""Every method learns by its defaults: a scenario of ten lines that names it and its local steps.

A method that is registered is tested; what cannot learn so early (FedRLR's global model, a
product of two superposed sums) and the need of layers to normalise (FedBN) are declared.
"""

from __future__ import annotations

import pytest
from contract.small import ALGORITHMS, is_normed

import otafl
from otafl.analysis.cautions import describe_chance, judge
from otafl.core import registry
from otafl.results.end_values import select_end_total
from otafl.scenario.yaml_source import parse

pytestmark = pytest.mark.slow

TEN_LINES = """\
name: ten_lines
data: digits
model: {model}
algorithm: {algorithm}
channel: {{name: rayleigh, snr_db: 20}}
transport: ideal
training:
  rounds: 40
  local_steps: 10
  eval_every: 40
"""

NORMED = "{name: 'contract.small:normed', hidden: [100]}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_a_method_trains_is_far_above_chance(algorithm: str) -> None:
    method = registry.load_component("algorithm", algorithm)
    slow = {"test_accuracy"} if algorithm == "fedrlr" else set()
    model = NORMED if is_normed(method) else "mlp"
    text = TEN_LINES.format(model=model, algorithm=algorithm)
    assert len(text.splitlines()) == 10
    result = otafl.run(otafl.load_scenario(parse(text).data))
    trained = [name for name in judge(result) if name not in slow]
    assert trained
    for name in trained:
        assert float(select_end_total(result, name).mean()) > 0.4, name
    said = describe_chance(result)
    assert not said or (slow and "the learning shows in local_test_accuracy" in said), said
