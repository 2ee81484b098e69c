"""Traces from arrays, NumPy files and CSV files.

Mutations that make a test here fail: antennas and devices swapped, real and imaginary parts
swapped, a missing row taken as zero, an order of rows that matters, a pickled file loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otafl
from otafl.channels.trace_files import read

pytestmark = pytest.mark.exact

HERTZ = {"carrier_hz": 3.5e9, "bandwidth_hz": 1e6}


def make(*shape: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=shape) + 1j * generator.normal(size=shape)


def write_csv(path: Path, h: np.ndarray, axes: tuple[str, ...]) -> None:
    lines = [
        ",".join(map(str, (*place, h[place].real, h[place].imag))) for place in np.ndindex(*h.shape)
    ]
    path.write_text("\n".join([",".join((*axes, "real", "imag")), *reversed(lines)]) + "\n")


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4), (3, 2, 4, 5)])
@pytest.mark.parametrize("how", ["array", "npy", "csv"])
def test_responses_are_those_of_the_source(
    shape: tuple[int, ...], how: str, tmp_path: Path
) -> None:
    h, source = make(*shape), tmp_path / f"h.{how}"
    if how == "npy":
        np.save(source, h)
    elif how == "csv":
        write_csv(source, h, ("round", "device", "antenna", "group")[: len(shape)])
    path = tmp_path / "h.nc"
    found = otafl.convert_trace(h if how == "array" else source, path, **HERTZ)
    whole = h.reshape((*shape, 1, 1)[:4])
    assert found == whole.shape
    trace = read(str(path))
    assert np.array_equal(trace.response, whole)
    assert trace.bandwidth_hz == 1e6


def test_a_run_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "h.nc"
    otafl.convert_trace(make(4, 3, 2), path, **HERTZ)
    keys: dict[str, Any] = {"channel": {"name": "trace", "path": str(path)}}
    keys |= {
        "devices": {"count": 3},
        "training": {"rounds": 2},
        "model": {"name": "mlp", "hidden": [4]},
    }
    assert np.isfinite(otafl.run({"name": "a", **keys}).test_accuracy).all()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (make(3), r"the array has the shape \(3,\) .*; expected complex numbers \(round, device\)"),
        (make(2, 2, 2, 2, 2), r"has the shape \(2, 2, 2, 2, 2\)"),
        (np.zeros((0, 2)), r"has the shape \(0, 2\)"),
        (np.array([["a", "b"]]), "the type <U1"),
        (np.array([[1, np.nan]]), r"is not finite at \(0, 1\) of the shape \(1, 2\)"),
        ("no.npy", r"'no.npy' cannot be read \(No such file or directory\)"),
        ("no.csv", r"'no.csv' cannot be read \(No such file or directory\)"),
        ("text.npy", "'text.npy' cannot be read"),
        ("pickled.npy", "'pickled.npy' cannot be read"),
        ("columns.csv", "has the columns a, b; expected round, device, antenna, group, real, imag"),
        ("empty.csv", "has the columns none"),
        ("missing.csv", r"has 2 rows, and its numbers make the shape \(2, 2, 1, 1\)"),
        ("twice.csv", "has 2 rows"),
        ("words.csv", "'words.csv', line 2: expected numbers"),
    ],
)
def test_what_is_no_channel(
    source: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = "round,device,real,imag\n"
    Path("text.npy").write_text("text")
    np.save("pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    Path("columns.csv").write_text("a,b\n1,2\n")
    Path("empty.csv").write_text("")
    Path("missing.csv").write_text(f"{head}0,0,1,0\n1,1,1,0\n")
    Path("twice.csv").write_text(f"{head}0,0,1,0\n0,0,1,0\n")
    Path("words.csv").write_text(f"{head}0,x,1,0\n")
    with pytest.raises(otafl.UserError, match=said):
        otafl.convert_trace(source, "h.nc", **HERTZ)
    assert not Path("h.nc").exists()


def test_bands_are_positive() -> None:
    with pytest.raises(otafl.UserError, match="bandwidth_hz: got 0; must be a positive"):
        otafl.convert_trace(make(2, 2), "h.nc", carrier_hz=1e9, bandwidth_hz=0)
