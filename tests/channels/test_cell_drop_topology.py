"""Where devices are as they move through a cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from otafl.channels.cell_drop import reflect_at_circle


@pytest.mark.twin
def test_reflection_is_that_of_small_steps() -> None:
    """A plain loop of bounces, from wall to wall, for 20 devices."""
    rng = np.random.default_rng(0)
    radius = 50.0
    start = np.stack([rng.uniform(-30, 30, 20), rng.uniform(-30, 30, 20), np.full(20, 1.5)], 1)
    velocity = np.concatenate([rng.normal(0, 3, (20, 2)), np.zeros((20, 1))], 1)
    times = [0.0, 0.3, 7.0, 40.0, 1000.0]
    time = torch.tensor(times, dtype=torch.float64)[:, None]
    found = reflect_at_circle(
        torch.from_numpy(start)[None], torch.from_numpy(velocity)[None], radius, time
    )
    for device in range(20):
        for row, left in enumerate(times):
            x, v = start[device, :2].copy(), velocity[device, :2].copy()
            while True:
                square, along = v @ v, x @ v
                root = math.sqrt(along**2 - square * (x @ x - radius**2))
                hit = (-along + root) / square
                if hit >= left:
                    x = x + left * v
                    break
                x, left = x + hit * v, left - hit
                normal = x / math.sqrt(x @ x)
                v = v - 2 * (v @ normal) * normal
                x = normal * radius * (1 - 1e-15)
            assert found[row, 0, device, :2].numpy() == pytest.approx(x, abs=1e-6)
    assert (found[..., 2] == 1.5).all()


@pytest.mark.exact
def test_the_way_back_in_time() -> None:
    """Before the start devices have come the other way, and never from outside."""
    rng = np.random.default_rng(3)
    start = np.concatenate([rng.uniform(-60, 60, (1, 20, 2)), np.ones((1, 20, 1))], 2)
    velocity = np.concatenate([rng.normal(0, 30, (1, 20, 2)), np.zeros((1, 20, 1))], 2)
    place, way = torch.from_numpy(start), torch.from_numpy(velocity)
    time = torch.tensor([[0.5], [20.0]], dtype=torch.float64)
    back = reflect_at_circle(place, way, 100.0, -time)
    torch.testing.assert_close(back, reflect_at_circle(place, -way, 100.0, time))
    assert (back[..., :2].norm(dim=-1) <= 100.0 + 1e-9).all()
    both = reflect_at_circle(place, way, 100.0, torch.cat([-time, time]))
    torch.testing.assert_close(both[:2], back)
    torch.testing.assert_close(both[2:], reflect_at_circle(place, way, 100.0, time))
