"""The map of devices and their base station: places, gains, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.small import engine, scenario
from matplotlib.colors import to_rgba

from otafl.cli import main
from otafl.core.errors import UserError
from otafl.plots import build_table, draw, map_data
from otafl.plots.partition import COLOURS, partition_data

pytestmark = pytest.mark.exact

UMI: dict[str, Any] = {"channel": {"name": "umi", "tx_power_dbm": 10.0}, "devices.count": 6}
MUNICH: dict[str, Any] = {"channel": {"name": "trace", "scene": "munich"}, "devices.count": 90}


def test_gains_and_places_are_those_of_a_run() -> None:
    """SNR at full power of trial 2: budget times large-scale gain of the engine's channel, at the
    distances of its drop."""
    data = map_data(scenario(UMI), sel={"trial": 2})
    link = engine(UMI).parts.link
    state, budget = link.channel.get_state(0), link.budget.budget
    snr_db = 10.0 * np.log10((state.gain * budget)[2].double().numpy())
    np.testing.assert_allclose(data["snr_db"], snr_db, rtol=1e-5)
    distance = np.hypot(data["east_m"], data["north_m"]).values
    drop = link.channel._start[2, :, :2].norm(dim=-1)
    np.testing.assert_allclose(distance, drop.numpy(), rtol=1e-6)
    assert (distance < 100.0).all()


def test_a_traced_place() -> None:
    """Devices without a path are there without an SNR; the coverage where a device is in the open
    is about its SNR, whether gains are absolute or relative."""
    for gains in ("absolute", "relative"):
        data = map_data(scenario({**MUNICH, "channel.gains": gains, "channel.start": "zero"}))
        snr = data["snr_db"].values
        assert 0 < np.isneginf(snr).sum() < 45
        assert f"{np.isneginf(snr).sum()} devices have no path" in data.attrs["note"]
        assert "OpenStreetMap contributors, ODbL" in data.attrs["note"]
        column, row = (
            np.abs(cells.values - at.values[:, None]).argmin(1)
            for cells, at in (
                (data["column_m"], data["east_m"]),
                (data["row_m"], data["north_m"]),
            )
        )
        there = data["coverage_db"].values[row, column]
        strong = snr > np.quantile(snr[np.isfinite(snr)], 0.8)
        assert abs(np.nanmedian((snr - there)[strong])) < 3.0
    figure = draw(data)
    assert len(figure.axes) == 2
    assert list(build_table(data)) == ["device", "east_m", "north_m", "snr_db"]
    assert len(build_table(data)) == 90


def test_classes_by_place() -> None:
    """In two sectors at full strength, the main classes of the halves of the plane are disjoint;
    dots have the classes' colours, and there is no bar of the SNR."""
    point = UMI | {"devices.count": 12, "data.partition": {"name": "by_place", "parts": 2}}
    data = map_data(scenario(point))
    samples = partition_data(scenario(point))["samples"].values
    assert data["main_class"].values.tolist() == samples.argmax(1).tolist()
    north = data["north_m"].values > 0.0
    assert not set(data["main_class"].values[north]) & set(data["main_class"].values[~north])
    (axes,) = draw(data).axes
    places = {
        tuple(spot): tuple(dots.get_facecolor()[0])
        for dots in axes.collections[:-1]
        for spot in np.asarray(dots.get_offsets()).round(6).tolist()
    }
    assert len(places) == 12
    columns = (data[name].values for name in ("east_m", "north_m", "main_class"))
    for east, at, number in zip(*columns, strict=True):
        assert places[round(east, 6), round(at, 6)] == to_rgba(COLOURS[number])
    assert "main_class" not in map_data(scenario(UMI))


def test_what_has_no_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'star' has no places, .* umi, uma, rma, trace have"):
        map_data(scenario({}))
    file = tmp_path / "place.yaml"
    file.write_text("name: place\nchannel: {name: umi}\ndevices: {count: 3}\n")
    for arguments, code in (((), 0), (("--hue", "device"), 2), (("--x", "round"), 2)):
        with pytest.raises(SystemExit) as left:
            main(["plot", str(file), "--kind", "map", *arguments])
        assert int(left.value.code or 0) == code
    assert (tmp_path / "place_map.png").stat().st_size > 5000
