"""FedHM in the engine, over every uplink: without errors all ways to send are one method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
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


def near(one: Engine, other: Engine, tolerance: float) -> None:
    for name in ("model", "frame"):
        a, b = one.server[name], other.server[name]
        if name == "frame":  # singular vectors have a sign
            a, b = a.abs(), b.abs()
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def test_a_product_is_its_factors() -> None:
    """Also where a trial has nobody at some level."""
    keys = {"transport": "digital", "devices.capacity_levels": "dynamic"}
    near(after("factors", **keys), after("product", **keys), 1e-10)


def test_the_tangent_is_near_the_product() -> None:
    """Without a dense level, what is lost is of second order in the step."""
    gaps = []
    for rate in (0.02, 0.01):
        keys = {"algorithm": {"levels": [0.5, 0.25], "learning_rate": rate}, "transport": "ideal"}
        ends = [after(s, 1, **keys).server["model"] for s in ("product", "tangent")]
        start = after("product", 0, **keys).server["model"]
        moved = float((ends[0] - start).norm())
        gaps.append(float((ends[0] - ends[1]).norm()))
        assert gaps[-1] < 0.01 * moved
    assert 3.0 < gaps[0] / gaps[1] < 5.0


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
