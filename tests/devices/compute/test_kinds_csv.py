"""Devices from a file, against numbers worked by hand, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.made_devices import make_hardware

from otafl.core.errors import UserError
from otafl.devices.compute.kinds import Csv

pytestmark = pytest.mark.exact


def from_csv(folder: Path, text: str, **settings: Any) -> Csv:
    file = folder / "devices.csv"
    file.write_text(text)
    return Csv(file=str(file), **settings)


def test_a_file_has_a_device_a_row(tmp_path: Path) -> None:
    text = "frequency_hz, flops_per_s, battery_j, flops_per_cycle\n2e9,,7,\n,3e9,,6\n\n1e9,,9,2\n"
    devices = make_hardware(from_csv(tmp_path, text, flops_per_cycle=8, kappa=3e-28), 5)
    assert devices.flops_per_s.tolist() == [16e9, 3e9, 2e9, 16e9, 3e9]
    assert devices.frequency_hz.tolist() == [2e9, 0.5e9, 1e9, 2e9, 0.5e9]
    assert devices.battery_j.tolist() == [7, np.inf, 9, 7, np.inf]
    assert devices.kappa.tolist() == [3e-28] * 5
    again = make_hardware(from_csv(tmp_path, "flops_per_s,charge\n1,0.5\n", battery_j=4), 2)
    assert again.charge_j.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flops_per_s,batery_j\n1,2\n", r"line 1: column 'batery_j' is unknown; known: flops"),
        ("flops_per_s,flops_per_s\n1,2\n", r"line 1: column 'flops_per_s' occurs twice"),
        ("flops_per_s\n1\n-1\n", r"line 3, column 'flops_per_s': got -1; must be greater than 0"),
        ("battery_j\n1\n", r"line 2: must have one of the columns flops_per_s and frequency_hz"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    config = from_csv(tmp_path, text)
    with pytest.raises(UserError, match=r"^devices.compute.file: '.*devices.csv'.*" + message):
        make_hardware(config)
