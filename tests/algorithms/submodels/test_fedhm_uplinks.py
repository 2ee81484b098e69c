"""What FedHM sends over a digital uplink."""

from __future__ import annotations

from typing import Any

import pytest
from contract.small import engine, run

from otafl.engine.engine import Engine

pytestmark = pytest.mark.exact


def after(sends: str, rounds: int = 2, **keys: Any) -> Engine:
    algorithm = {"name": "fedhm", "sends": sends, "learning_rate": 0.02}
    algorithm |= keys.pop("algorithm", {})
    changes = {
        "algorithm": algorithm,
        "model": {"name": "mlp", "hidden": [12, 8]},
        "devices.count": 8,
        "devices.capacity_levels": "dynamic",
        "engine.dtype": "float64",
    }
    return run(engine(changes | keys), rounds)


def bits(sends: str, level: int, **keys: Any) -> float:
    """Of a round up, per device, all devices at one level."""
    shares = [float(i == level) for i in range(4)]
    levels = {"name": "fixed", "shares": shares}
    one = after(sends, 1, transport="digital", **keys, **{"devices.capacity_levels": levels})
    return float(one.means.take()["uplink_bits"].mean()) / 8


def test_bits_of_each_level() -> None:
    """Factors, and coordinates beyond a device's rank, cost nothing on a digital uplink."""
    keys = {"algorithm": {"masked_loss": False}}
    base = bits("factors", 3, **keys)
    ours = after("factors", 0, transport="ideal").parts.algorithm
    sizes = [one.num_params for one in ours.levels]  # type: ignore[attr-defined]
    for level in (1, 2):
        for sends in ("factors", "tangent"):
            ratio = bits(sends, level, **keys) / base
            assert ratio == pytest.approx(sizes[level] / sizes[3], rel=1e-3), (sends, level)
    assert bits("product", 3, **keys) / base == pytest.approx(sizes[0] / sizes[3], rel=1e-3)
