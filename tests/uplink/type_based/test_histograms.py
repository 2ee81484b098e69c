"""Median and trimmed mean of histograms, against those of the values themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from scipy import stats
from support.numbered import Numbered

from otafl.core.errors import UserError
from otafl.scenario import ScenarioError
from otafl.uplink.type_based.type_based import compute_median, compute_trimmed_mean

pytestmark = pytest.mark.exact

VALUES = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)


def draw_counts(total: int) -> np.ndarray:
    return np.random.default_rng(total).multinomial(total, [0.2] * 5, (3, 40)).swapaxes(1, 2)


@pytest.mark.parametrize("total", [1, 7, 8])
def test_statistics_of_whole_counts_are_those_of_the_values(total: int) -> None:
    counts, v = draw_counts(total), VALUES.numpy()
    given = torch.from_numpy(counts.astype(float))
    trim = total // 3
    median = compute_median(given, VALUES).numpy()
    trimmed = compute_trimmed_mean(given, VALUES, torch.full((3, 40), float(trim))).numpy()
    for s, c in np.ndindex(3, 40):
        sample = np.repeat(v, counts[s, :, c])
        assert median[s, c] == pytest.approx(np.median(sample), abs=1e-12)
        assert trimmed[s, c] == pytest.approx(sample[trim : total - trim].mean(), abs=1e-12)
        assert trimmed[s, c] == pytest.approx(
            stats.trim_mean(sample, trim / total + 1e-9), abs=1e-9
        )


def test_negative_counts_are_zero() -> None:
    counts = torch.tensor([[[-3.0], [1.0], [0.0], [2.0], [-1.0]]], dtype=torch.float64)
    assert compute_median(counts, VALUES).item() == 0.5
    none = torch.zeros(1, 1, dtype=torch.float64)
    expected = (-0.5 + 2 * 0.5) / 3
    assert compute_trimmed_mean(counts, VALUES, none).item() == pytest.approx(expected)


KEYS: dict[str, Any] = {
    "devices.count": 7,
    "data.partition": "iid",
    "engine.dtype": "float64",
    "power": "ci",
    "channel": {"name": "awgn", "snr_db": 60.0},
}


@pytest.mark.parametrize(("estimate", "expected"), [("median", 4.0), ("trimmed_mean", 4.0)])
def test_a_server_takes_the_statistic_of_its_counts(estimate: str, expected: float) -> None:
    """Of devices that send 1 to 7 on levels a unit apart, with attackers and without."""
    transport: dict[str, Any] = {
        "name": "type_based",
        "levels": 17,
        "range": 8.0,
        "project": "lattice",
    }
    transport["estimate"] = estimate
    keys = KEYS | {"transport": transport}
    one = run(engine(keys, probe=Numbered), 2)
    np.testing.assert_allclose(one.server["x"].numpy(), 2 * expected, atol=1e-6)
    np.testing.assert_allclose(one.means.take()["aggregation_nmse"], 0.0, atol=1e-9)
    faults = {"byzantine": 1, "attack": "scale", "scale": 1e6}
    attacked = run(engine(keys | {"faults": faults}, probe=Numbered), 1)
    # 8 for 1: the median of 2 to 8 is 5, and the mean of 3 to 7 too
    np.testing.assert_allclose(attacked.server["x"].numpy(), 5.0, atol=1e-6)


def test_a_share_between_two_numbers_of_devices_trims_the_smaller() -> None:
    """A fifth of seven devices trims one at each end. Three for 1 leaves 2 3 3 4 5 6 7: 21 / 5."""
    transport = {"name": "type_based", "levels": 17, "range": 8.0, "project": "lattice"}
    transport |= {"estimate": "trimmed_mean", "trimmed_share": 0.2}
    faults = {"byzantine": 1, "attack": "scale", "scale": 3.0}
    one = run(engine(KEYS | {"transport": transport, "faults": faults}, probe=Numbered), 1)
    np.testing.assert_allclose(one.server["x"].numpy(), 21 / 5, atol=1e-6)
    np.testing.assert_allclose(one.means.take()["aggregation_nmse"], 0.0, atol=1e-9)


def test_what_has_no_statistic_is_refused() -> None:
    transport = {"name": "type_based", "estimate": "median"}
    with pytest.raises(ScenarioError, match="gives no sum"):
        scenario(KEYS | {"transport": transport, "algorithm": "fedrlr"})
    with pytest.raises(UserError, match="same coordinates of all devices"):
        run(engine(KEYS | {"transport": transport, "algorithm": "heterofl"}), 1)
