"""What `otafl list fedrlr` says of a quick try: how far the local and the global model come, and
how far FedRLR+ comes in as many rounds."""

from __future__ import annotations

import pytest

import otafl
from otafl.scenario import writing

pytestmark = pytest.mark.slow


TRIALS = 5
"""A trial alone scatters by 0.035, and rounding alone moves it as far in a hundred rounds."""


def test_fedrlr_learns_local_models_and_fedrlr_plus_a_global_one() -> None:
    scenario = writing.build_example("algorithm", "fedrlr") | {"trials": TRIALS}
    end = otafl.run(otafl.load_scenario(scenario)).isel(round=-1).mean("trial")
    assert 0.65 < end.local_test_accuracy < 0.85
    assert end.test_accuracy < 0.35
    plus = otafl.run(otafl.load_scenario(scenario | {"algorithm": "fedrlr_plus"}))
    assert plus.test_accuracy.isel(round=-1).mean("trial") > 0.75
