"""Devices on paths from a file: files, interpolation, and the motions that a path can repeat."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.made_channels import make_channel
from support.refusals import assert_refused

import otafl
from otafl.analysis import cautions
from otafl.channels.cell import Cell
from otafl.channels.fading import FAR
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario.loading import load_points

make_channel = functools.partial(make_channel, seed=3)
DEVICES = 4
FCD = """<fcd-export>
<timestep time="0.00"><vehicle id="b" x="0" y="10" speed="2"/></timestep>
<timestep time="2.00">
<vehicle id="b" x="4.0" y="10"/><person id="a" x="7" y="1"/>
</timestep>
<timestep time="4.00"><person id="a" x="9" y="1"/></timestep>
</fcd-export>
"""


def write_csv(path: Path, rows: Iterable[tuple[float, ...]], columns: str = "x_m,y_m") -> str:
    lines = [",".join(map(repr, row)) for row in rows]
    path.write_text("\n".join([f"time_s,device,{columns}", *lines]))
    return str(path)


def on_trace(path: str, devices: int = DEVICES, trials: int = 1, **settings: Any) -> Any:
    mobility = {"name": "trace", "path": path, **settings.pop("mobility", {})}
    return make_channel("umi", devices, range(trials), mobility=mobility, **settings)


def straight(channel: Any, file: Path, speed: float, end_s: float = 30.0) -> str:
    """A file with the ways of a channel's devices, at a multiple of their velocity."""
    start, way = channel._start[0], channel._velocity[0] * speed
    rows = [
        (time, k, *(start[k, :2] + time * way[k, :2]).tolist())
        for k in range(DEVICES)
        for time in (0.0, end_s)
    ]
    return write_csv(file, rows)


@pytest.mark.exact
def test_a_straight_path_is_linear_mobility(tmp_path: Path) -> None:
    """Gains and fading, in all blocks of a payload."""
    keys = {"antennas": 2, "block_symbols": 50, "bandwidth_hz": 1e4, "cell_radius_m": 300.0}
    linear = make_channel("umi", DEVICES, range(1), mobility="linear", speed_kmh=10.0, **keys)
    trace = on_trace(straight(linear, tmp_path / "way.csv", 1.0), **keys)
    for round in (0, 1, 7):
        one, other = linear.get_state(round), trace.get_state(round)
        torch.testing.assert_close(one.gain, other.gain, rtol=1e-9, atol=0)
        torch.testing.assert_close(one.blocks_fn(4), other.blocks_fn(4), rtol=0, atol=1e-9)


@pytest.mark.exact
def test_a_standing_path_is_no_mobility(tmp_path: Path) -> None:
    standing = make_channel("umi", DEVICES, range(1), speed_kmh=0.0)
    trace = on_trace(straight(standing, tmp_path / "way.csv", 0.0))
    for round in (0, 5):
        one, other = standing.get_state(round), trace.get_state(round)
        torch.testing.assert_close(one.gain, other.gain, rtol=1e-9, atol=0)
        torch.testing.assert_close(one.h, other.h, rtol=0, atol=1e-9)


@pytest.mark.exact
def test_the_clock_decides_the_position(tmp_path: Path) -> None:
    """Each trial has its own time; earlier rounds are round_interval_s apart."""
    rows = [(10.0, 0, 0.0, 20.0), (14.0, 0, 40.0, 20.0), (18.0, 0, 40.0, 60.0)]
    mobility = {"start_s": 10.0, "origin_m": [0.0, -5.0]}
    channel = on_trace(write_csv(tmp_path / "a.csv", rows), 1, 2, mobility=mobility)
    assert channel.presence_s.tolist() == [[0.0, 8.0]]
    channel.get_state(3)
    channel.set_time(3, np.array([2.0, 5.0]))
    places = [channel.get_positions(3, trial).device_m[0].tolist() for trial in (0, 1)]
    assert places == [[20.0, 25.0], [40.0, 35.0]]
    assert channel.get_positions(2, 0).device_m[0].tolist() == [10.0, 25.0]
    fresh = on_trace(write_csv(tmp_path / "a.csv", rows), 1, 2, mobility=mobility)
    fresh.set_time(3, np.array([2.0, 5.0]))
    assert torch.equal(channel.get_state(3).gain, fresh.get_state(3).gain)
    assert torch.equal(channel.get_state(3).h, fresh.get_state(3).h)
    same = make_channel(
        "umi", 1, (0, 0), mobility={"name": "trace", "path": str(tmp_path / "a.csv")}
    )
    same.set_time(3, np.array([12.0, 12.0]))
    gain, h = same.get_state(3).gain, same.get_state(3).h
    assert torch.equal(gain[0], gain[1])
    assert torch.equal(h[0], h[1])
    same.set_time(3, np.array([12.0, 15.0]))
    assert not torch.equal(*same.get_state(3).gain)
    assert torch.equal(same.get_state(3).gain[0], gain[0])
    far = [float(channel.compute_time_s(torch.tensor([FAR + n]))[0, 0]) for n in range(100)]
    assert np.histogram(far, 4, (0.0, 8.0))[0].tolist() == pytest.approx([25] * 4, abs=2)


@pytest.mark.exact
def test_heights_and_floating_car_data(tmp_path: Path) -> None:
    rows = [(0.0, 0, 1.0, 2.0, 3.0), (2.0, 0, 1.0, 2.0, 5.0), (1.0, 3, 1.0, 2.0, 3.0)]
    path = write_csv(tmp_path / "a.csv", rows, "x_m,y_m,z_m")
    channel = on_trace(path, 1)  # device 3 has one position only
    assert channel.paths.compute_positions(torch.tensor([[1.0]]))[0, 0].tolist() == [[1, 2, 4]]
    (tmp_path / "a.xml").write_text(FCD)
    channel = on_trace(str(tmp_path / "a.xml"), 2)
    assert channel.presence_s.tolist() == [[0.0, 2.0], [2.0, 4.0]]
    place = channel.paths.compute_positions(torch.tensor([[1.0], [3.0]], dtype=torch.float64))
    assert place[:, 0].tolist() == [[[2, 10, 1.5], [7, 1, 1.5]], [[4, 10, 1.5], [8, 1, 1.5]]]


@pytest.mark.exact
def test_bad_files_are_refused_with_the_line(tmp_path: Path) -> None:
    head = "time_s,device,x_m,y_m\n"
    entity = '<!DOCTYPE a [<!ENTITY b "c">]>\n<a/>'
    cases = [
        ("a.csv", head + "0,0,1,2\n1,0,,2\n", "line 3: expected a finite time, x and y"),
        ("a.csv", head + "0,0.5,1,2\n", "line 2: got device 0.5; must be a whole number"),
        (
            "a.csv",
            head + "0,0,1,2\n1,0,1,2\n0,0,3,2\n",
            "line 4: a second position at time 0",
        ),
        (
            "a.csv",
            head + "0,0,1,2\n",
            "has 0 devices with two positions or more, and",
        ),
        ("a.csv", head + "0,0,1,2\n1,0,1,2\n", "has 1 devices with two positions or more, and the"),
        ("a.csv", "time_s,device,x_m,y_m,z_m\n0,0,1,2,-4\n", "line 2: z_m: got -4; must be"),
        ("a.xml", FCD.replace('"7"', '"seven"'), "line 4: expected a finite time, x and y"),
        ("a.xml", FCD[:90], "cannot be read as floating-car data (unclosed token: line 3"),
        ("a.xml", entity, "has 0 devices with two positions"),
        ("none.csv", None, "cannot be read"),
    ]
    for name, text, message in cases:
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UserError) as error:
            on_trace(str(tmp_path / name), 2)
        assert message in str(error.value)
        assert str(error.value).startswith("channel.mobility.path: '")


def load(tmp_path: Path, **changes: Any) -> Any:
    rows = [(0.0, 0, 20.0, 0.0), (1.0, 0, 20.0, 0.0), (0.002, 1, 20.0, 5.0), (1.0, 1, 30.0, 5.0)]
    path = write_csv(tmp_path / "a.csv", rows)
    channel = {"name": "umi", "mobility": {"name": "trace", "path": path}}
    base = {
        "name": "moving",
        "channel": channel,
        "devices": {"count": 2},
        "model": "softmax_regression",
        "algorithm": "fedavg",
        "training": {"rounds": 6},
    }
    return load_points(base | changes)[1]


def test_devices_come_and_leave_with_their_paths(tmp_path: Path) -> None:
    """The second device enters after 2 ms; the trial ends when both have left."""
    engine = Engine(assemble(load(tmp_path), [0, 1]))
    seen = []
    while engine.running.any() and not engine.ended.all() and len(seen) < 600:
        engine.run_round(len(seen))
        time_s = engine.parts.clock.get_time_s()[0]
        seen.append((time_s, engine.parts.clock.get_available()[0].tolist()))
    assert seen[0][1][0]
    assert all(there == [True, time_s >= 0.002] for time_s, there in seen if time_s < 1.0)
    assert engine.ended.all()


@pytest.mark.exact
def test_a_run_beyond_its_paths_says_so_once(tmp_path: Path) -> None:
    """The first device leaves after 10 ms, and the second one after the run, or within it."""
    for end_s, count, when in ((1e3, 1, "so they were absent until"), (0.02, 2, "so training end")):
        (point,) = load(tmp_path, training={"rounds": 20}, trials=2)
        write_csv(
            tmp_path / "a.csv",
            [(0.0, 0, 20.0, 0.0), (0.01, 0, 20.0, 0.0), (0.0, 1, 20.0, 5.0), (end_s, 1, 30.0, 5.0)],
        )
        with pytest.warns(
            UserWarning, match=f"paths of {count} of 2 devices ended .0 at 0.01 s"
        ) as told:
            ds = otafl.run(point.scenario)
        assert sum("channel.mobility.path" in str(one.message) for one in told) == 1
        assert when in cautions.describe_ended_paths(ds)
        assert ds["path_end_s"].values.tolist() == [[0.01, end_s]] * 2
    assert cautions.describe_ended_paths(ds.assign(path_end_s=ds["path_end_s"] + 1.0)) == ""


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    points = load(tmp_path)

    def run(engine: Engine, rounds: range) -> Engine:
        engine.parts.clock.journal = engine.parts.clock.journal or []
        for round in rounds:
            engine.run_round(round)
        return engine

    whole = run(Engine(assemble(points, [0])), range(4))
    first = run(Engine(assemble(points, [0])), range(2))
    again = Engine(assemble(points, [0]))
    again.load_state_dict(first.state_dict())
    again = run(again, range(2, 4))
    for name, value in whole.server.items():
        assert torch.equal(value, again.server[name])


@pytest.mark.exact
def test_what_does_not_go_with_a_trace(tmp_path: Path) -> None:
    trace = {"name": "trace", "path": "a.csv"}
    cases: list[tuple[Any, str]] = [
        ({"mobility": trace, "speed_kmh": 3}, "speed_kmh: got 3, but a trace has its own"),
        ({"mobility": {"name": "trace"}}, "path"),
        ({"mobility": "trace"}, "'linear' or {name: trace, path: positions.csv}"),
        ({"mobility": {**trace, "margin_db": -1}}, "margin_db"),
    ]
    assert_refused(Cell.Settings, cases, ValidationError)
    availability = {"count": 2, "availability": "markov"}
    with pytest.raises(UserError, match="presence follows from paths"):
        load(tmp_path, devices=availability)
    with pytest.raises(UserError, match="a graph's devices have no paths"):
        load(tmp_path, topology={"name": "graph", "shape": "ring"})
    private = {"topology": {"name": "cells", "servers": 3}, "privacy": {"clip": 1.0}}
    with pytest.raises(UserError, match="no account follows a device"):
        load(tmp_path, **private)
