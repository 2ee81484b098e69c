"""Modules of compiled loops: without Numba, tensor operations give the numbers up to rounding."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import xarray as xr

import otafl
from otafl.core.compiled_module import has_numba, load_loops

pytestmark = pytest.mark.exact

PROGRAM = """
import sys, warnings
sys.modules["numba"] = None  # as if it were not installed
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
import otafl
warnings.simplefilter("always")
otafl.run(SCENARIO, sys.argv[1])
"""
SCENARIO = {
    "name": "small",
    "data": {"name": "digits"},
    "model": "softmax_regression",
    "devices": {"count": 3},
    "channel": "rayleigh",
    "training": {"rounds": 2, "eval_every": 1, "batch_size": 4},
    "sweep": {"transport": ["over_the_air", "reed", "fsk_majority_vote"]},
}
"""All kinds of compiled loops would run in it."""


def test_loops_are_for_processors_with_numba() -> None:
    assert load_loops("otafl.core.rng_kernel", torch.device("meta")) is None
    kernel = load_loops("otafl.core.rng_kernel", torch.device("cpu"))
    assert (kernel is not None) is has_numba()


@pytest.mark.slow
def test_without_numba_the_numbers_agree_and_it_is_said_once(tmp_path: Path) -> None:
    """A program of its own has no Numba; this one has."""
    program = PROGRAM.replace("SCENARIO", repr(SCENARIO))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "without.nc")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("Numba is not installed") == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        otafl.run(SCENARIO, tmp_path / "with.nc")
    assert not any("Numba is not installed" in str(one.message) for one in caught)
    results = [
        xr.load_dataset(tmp_path / name, engine="h5netcdf").drop_vars("wall_time_s")
        for name in ("without.nc", "with.nc")
    ]
    xr.testing.assert_allclose(*results, rtol=1e-5)


def test_numba_is_left_out_where_a_file_of_the_working_folder_directs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: .cache")
    has_numba.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"not used.*\.numba_config\.yaml.*move the file away"):
        assert not has_numba()
    (tmp_path / ".numba_config.yaml").unlink()
    has_numba.cache_clear()
    assert has_numba()
