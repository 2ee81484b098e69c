"""Files without a checksum are read in a child, which ends in bounded time and memory."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from support.parts import TWO_AXES, make_scenario, make_whole

from otafl.core.errors import DamagedError
from otafl.results import foreign
from otafl.results.checksums import ChecksumError
from otafl.results.files import check_foreign, write_part
from otafl.results.foreign import limit_reading

pytestmark = pytest.mark.exact


def test_a_file_is_read_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one whose numbers need more memory than the child has, and one that it never ends with."""
    with h5py.File(tmp_path / "large.nc", "w") as file:
        file.create_dataset("x", (2**30,), np.float64)
    os.mkfifo(tmp_path / "endless.nc")
    with limit_reading() as read:
        with pytest.raises(ChecksumError, match="reading it takes more than 4 GiB of memory"):
            read(tmp_path / "large.nc")
        monkeypatch.setattr(foreign, "LIMIT_S", 0.5)
        with pytest.raises(ChecksumError, match=r"it cannot be read within 0\.5 s"):
            read(tmp_path / "endless.nc")


def test_only_a_file_without_a_checksum_is_read_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.nc"
    result: xr.Dataset = make_whole(make_scenario(TWO_AXES))
    write_part(result, path)
    monkeypatch.setattr(foreign, "LIMIT_S", 0.0)
    check_foreign(path)
    (tmp_path / "r.nc.sha256").unlink()
    with pytest.raises(DamagedError, match=r"r\.nc: is damaged \(it cannot be read within 0 s\)"):
        check_foreign(path)
    monkeypatch.setattr(foreign, "LIMIT_S", 60.0)
    check_foreign(path)
