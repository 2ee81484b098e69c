"""Devices that go from server to server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario.loading import load_points
from otafl.topology.handover import choose_servers, list_served_spans
from otafl.validation.cells import compute_losses

SITE_M = 100.0


@pytest.mark.exact
def test_a_server_is_chosen_with_a_margin() -> None:
    """One device; the second server is 0, 2, 4 and then -2 dB better; a margin of 3 dB."""
    better = np.array([0.0, 2.0, 4.0, -2.0, -4.0])
    gain_db = np.stack([np.zeros(5), better], 1)[:, :, None]
    serving = choose_servers(gain_db, 3.0)
    assert serving[:, 0].tolist() == [0, 0, 1, 1, 0]
    spans = list_served_spans(serving, np.arange(5.0), np.array([[0.5, 4.5]]), 2)
    assert spans == [[[(0.5, 2.0), (4.0, 4.5)]], [[(2.0, 4.0)]]]
    late = list_served_spans(serving, np.arange(5.0), np.array([[2.5, 3.5]]), 2)
    assert late == [[[]], [[(2.5, 3.5)]]]


def load(tmp_path: Path, margin_db: float = 0.0, **changes: Any) -> Any:
    """A device walks from the first server to the second at 5 m/s, and one stands at the third."""
    file = tmp_path / "way.csv"
    file.write_text(
        "time_s,device,x_m,y_m\n0,0,0,3\n20,0,-100,3\n0,1,-50,80\n20,1,-50,80\n5,2,-20,3\n9,2,-20,3\n"
    )
    mobility = {"name": "trace", "path": str(file), "margin_db": margin_db, "measure_every_s": 0.1}
    cell = {"name": "rma", "shadowing": False, "in_car": False, "cell_radius_m": 50.0}
    cell |= {"indoor_probability": 0.0, "server_height_m": 35.0}
    topology = {"name": "cells", "servers": 3, "site_distance_m": SITE_M}
    base = {
        "name": "moving",
        "channel": cell | {"mobility": mobility, "min_distance_m": 10.0},
        "topology": topology,
        "devices": {"count": 3},
        "model": "softmax_regression",
        "algorithm": "fedavg",
    }
    return load_points(base | changes)[1]


@pytest.mark.exact
def test_handover_is_at_the_border(tmp_path: Path) -> None:
    """Where all links have a line of sight on the whole way, it is where the losses of rma differ
    by the margin: without one, the middle."""
    time_s = np.arange(0.0, 20.0, 0.1)
    for margin_db in (0.0, 3.0):
        for trial in range(30):
            parts = assemble(load(tmp_path, margin_db), [trial])
            channel: Any = parts.link.channel
            place = channel._get_position(torch.from_numpy(time_s)[:, None])
            if channel._find_clear(place)[:, :2, 0].all():
                break
        else:
            pytest.fail("no trial has two lines of sight")
        first, second, third = parts.topology.list_presence(parts.link.channel)
        near, _ = compute_losses("rma", np.hypot(5 * time_s, 3))
        far, _ = compute_losses("rma", np.hypot(100 - 5 * time_s, 3))
        expected = time_s[near - far > margin_db][0]
        assert first[0] == [(0.0, pytest.approx(expected))]
        assert second[0] == [(pytest.approx(expected), 20.0)]
        assert third[1] == [(0.0, 20.0)]
        assert first[2] == [(5.0, 9.0)]
        assert first[1] == second[1] == third[0] == []


def test_servers_have_the_same_devices(tmp_path: Path) -> None:
    """Samples and hardware belong to a device, gains to a device and a server."""
    compute = {"name": "lognormal"}
    parts = assemble(load(tmp_path, devices={"count": 3, "compute": compute}), [0, 1])
    data = parts.samples.training_data
    index = (
        data.index.view(2, 3, 3, -1) if data.index.dim() == 2 else data.index.unflatten(0, (2, 3))
    )
    assert torch.equal(index[:, 0], index[:, 1])
    assert not torch.equal(index[0], index[1])
    speed = parts.hardware.flops_per_s.reshape(2, 3, 3)
    assert (speed[:, 0] == speed[:, 1]).all()
    assert (speed[0] != speed[1]).all()
    channel = parts.link.channel
    assert torch.equal(channel.indoor.view(2, 3, 3)[:, 0], channel.indoor.view(2, 3, 3)[:, 2])
    place = parts.topology.get_positions(channel, 0)
    assert place.device_m.tolist() == [[0.0, 3.0], [-50.0, 80.0], [-20.0, 3.0]]
    assert len(place.base_m) == 3
    assert len(place.path_m) == 3


def test_servers_without_devices_keep_their_model(tmp_path: Path) -> None:
    """They do not wait for the next device, since all slots open together; the second device's
    signal is interference at the first server."""
    engine = Engine(assemble(load(tmp_path), [0]))
    start = {name: value.clone() for name, value in engine.server.items()}
    for round in range(3):
        engine.run_round(round)
    assert engine.parts.clock.get_time_s().max() < 1.0
    changed = [not torch.equal(value[1], start[name][1]) for name, value in engine.server.items()]
    assert not any(changed)
    for server in (0, 2):
        now = [
            torch.equal(value[server], start[name][server]) for name, value in engine.server.items()
        ]
        assert not all(now)
    assert engine.parts.link.transport.neighbours is not None
