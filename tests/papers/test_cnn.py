"""McMahan et al. 2017's convolutional network in small: it learns digits under federated averaging
over the air."""

from __future__ import annotations

import pytest

import otafl
from otafl.results.end_values import select_final


@pytest.mark.slow
def test_a_convolutional_network_learns_digits() -> None:
    """Chance is 10 %. Over 20 seeds the mean of two trials was never below 75 % at these
    settings."""
    result = otafl.run(
        {
            "name": "trend",
            "data": "digits",
            "model": {"name": "cnn", "channels": [8, 16], "hidden": [32]},
            "algorithm": {"name": "fedavg", "learning_rate": 0.2},
            "channel": {"name": "rayleigh", "snr_db": 25},
            "training": {"rounds": 50, "eval_every": 50, "batch_size": 6, "local_steps": 5},
            "trials": 2,
        }
    )
    assert float(select_final(result, "test_accuracy").mean()) > 0.7
