"""A module of compiled loops is loaded once it pays, together with others that need Numba; without
Numba tensor operations give the same numbers up to rounding.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
import xarray as xr

import otafl
from otafl.core.compiled_module import CompiledModule, has_numba

pytestmark = pytest.mark.exact

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledModule, "total_s", 0.0)


def spend(module: CompiledModule, seconds: float, share: float = 1.0) -> None:
    module.count_time(time.thread_time() - seconds, share)


def test_time_of_all_modules_pays_for_numba() -> None:
    """Two modules of 0.3 s each are loaded; one that saves nothing is not."""
    first, second, third = (CompiledModule("math") for _ in range(3))
    spend(first, 0.3)
    assert first.get(CPU) is None
    spend(second, 0.6, share=0.5)
    assert first.get(CPU) is second.get(CPU) is not None
    assert third.get(CPU) is None
    assert first.get(torch.device("meta")) is None


PROGRAM = """
import sys, warnings
sys.modules["numba"] = None  # as if it were not installed
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
import otafl
from otafl.core.compiled_module import CompiledModule
CompiledModule.LOADING_S = CompiledModule.CACHED_S = 0.0
warnings.simplefilter("always")
otafl.run(SCENARIO, sys.argv[1])
"""
SCENARIO = {
    "name": "small",
    "data": {"name": "digits"},
    "devices": {"count": 3},
    "channel": "rayleigh",
    "training": {"rounds": 2, "eval_every": 1, "batch_size": 4},
    "sweep": {"transport": ["over_the_air", "reed", "fsk_majority_vote"]},
}
"""All kinds of compiled loops would run in it."""


@pytest.mark.slow
def test_without_numba_the_numbers_agree_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of its own has no Numba; this one has."""
    program = PROGRAM.replace("SCENARIO", repr(SCENARIO))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "without.nc")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("Numba is not installed") == 1
    monkeypatch.setattr(CompiledModule, "LOADING_S", 0.0)
    monkeypatch.setattr(CompiledModule, "CACHED_S", 0.0)
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


def test_a_missing_numba_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    has_numba.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(RuntimeWarning, match="pip install numba"):
        assert not has_numba()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not has_numba()
    monkeypatch.undo()
    has_numba.cache_clear()
