"""A device of a trace that no path reaches in any round has neither fading nor a large-scale gain;
everything runs with it, and it is silent.
"""

from __future__ import annotations

import atexit
import functools
import tempfile
from typing import Any

import h5py
import numpy as np
import pytest
from contract.small import chosen, engine, run
from contract.test_no_channel import DEAD, DIGITAL, RECEIVERS, check

from otafl.channels.trace_files import SCHEMA
from otafl.core import registry

pytestmark = pytest.mark.exact


@functools.cache
def traced() -> str:
    """The path of a trace of 6 rounds, 4 devices, 3 antennas and 2 paths, of which DEAD has
    none."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path, draw = f"{folder.name}/place.nc", np.random.default_rng(0)
    a = 1e-5 * draw.standard_normal((2, 6, 4, 3, 2))
    a[:, :, DEAD] = 0.0
    with h5py.File(path, "w") as file:
        file.attrs.update({"schema": SCHEMA, "carrier_hz": 3.5e9, "bandwidth_hz": 1e6})
        file["a_real"], file["a_imag"] = a
        file["tau_s"] = draw.uniform(0.0, 1e-6, (6, 4, 2))
    return path


def channel(**options: Any) -> dict[str, Any]:
    return {"name": "trace", "path": traced(), "antennas": 1, "snr_db": 30.0, **options}


@pytest.mark.usefixtures("fewest_states")
@pytest.mark.parametrize("power", registry.list_names("power"))
def test_policies(power: str) -> None:
    check({"power": power, "channel": channel()}, 1)


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_receivers(receiver: str) -> None:
    power = registry.load_settings_class("receiver", receiver).example.get("power.name", "ci")
    check({"power": power, "receiver": receiver, "channel": channel(antennas=3)}, 1)


@pytest.mark.parametrize(
    "transport", [pytest.param("over_the_air", marks=pytest.mark.slow), "digital"]
)
@pytest.mark.parametrize("csi", registry.list_names("csi"))
def test_estimates(csi: str, transport: str) -> None:
    """Where the large-scale gain is zero, so is what is believed of the channel."""
    check({"channel": channel(), "csi": csi, "transport": transport, "power": "tci"}, 1)


@pytest.mark.parametrize(
    "rule", [pytest.param(one, marks=pytest.mark.slow) if one == "ldpc" else one for one in DIGITAL]
)
def test_digital(rule: str) -> None:
    codec = {"name": "uniform", "bits": 4}
    transport = {"name": "digital", **DIGITAL[rule]}
    check({"transport": transport, "codec": codec, "channel": channel()}, 1)


@pytest.mark.parametrize("selection", registry.list_names("selection"))
def test_selections(selection: str) -> None:
    keys: dict[str, Any] = {
        "devices.selection": chosen("selection", selection),
        "devices.participants": 2,
    }
    keys["algorithm"] = {"name": "fedavg", "sends": "increment"}
    check(keys | {"channel": channel(), "transport": "digital"}, 1)


@pytest.mark.parametrize("downlink", registry.list_names("downlink"))
def test_downlinks(downlink: str) -> None:
    one = run(engine({"channel": channel(), "downlink": downlink}), 3)
    assert all(block.isfinite().all() for block in one.server.values())
    assert np.isfinite(one.means.take()["airtime_s"].numpy()).all()


@pytest.mark.parametrize("gains", ["absolute", "relative"])
def test_wide_bands_and_physical_gains(gains: str) -> None:
    options = {"subcarrier_groups": 3, "bandwidth_hz": 1e7, "block_symbols": 40}
    if gains == "absolute":
        options |= {"snr_db": None, "gains": gains}
    check({"channel": channel(**options)}, 1)
