"""Traces from arrays, NumPy files and CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.refusals import assert_refused

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


@pytest.mark.parametrize(
    ("shape", "how"), [((3, 2), "array"), ((3, 2, 4), "npy"), ((3, 2, 4, 5), "csv")]
)
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


def test_archive_has_names_of_a_trace_or_a_single_array(tmp_path: Path) -> None:
    h, a, tau = make(3, 2), make(3, 2, 1, 5), np.full((2, 5), 1e-7)
    np.savez(tmp_path / "one.npz", h)
    assert np.array_equal(read(str(tmp_path / "one.npz")).response[..., 0, 0], h)
    np.savez(tmp_path / "parts.npz", h_real=make(3, 2, 1, 1).real, h_imag=make(3, 2, 1, 1).imag)
    assert np.array_equal(read(str(tmp_path / "parts.npz")).response, make(3, 2, 1, 1))
    np.savez_compressed(tmp_path / "paths.npz", a=a, tau_s=tau)
    found = read(str(tmp_path / "paths.npz"))
    assert np.array_equal(found.response, a)
    assert found.delay_s is not None
    assert found.delay_s.shape == (1, 2, 5)


def test_a_run_of_the_file_equals_that_of_the_converted_one(tmp_path: Path) -> None:
    h, file = make(4, 3, 2), tmp_path / "h.npz"
    np.savez(file, h=h)
    otafl.convert_trace(file, tmp_path / "h.nc", **HERTZ)
    keys = {"name": "a", "devices": {"count": 3}, "training": {"rounds": 1}}
    model = {"name": "mlp", "hidden": [4]}
    runs = [
        otafl.run({**keys, "model": model, "channel": {"name": "trace", "path": str(path)}})
        for path in (file, tmp_path / "h.nc")
    ]
    assert np.array_equal(runs[0].test_loss, runs[1].test_loss)


def test_file_without_a_channel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        ("shape.npy", r"channel.path: 'shape.npy' has the shape \(3,\); expected \(round"),
        ("pickled.npy", "channel.path: 'pickled.npy' cannot be read"),
        ("huge.npy", "channel.path: 'huge.npy' cannot be read"),
        ("nan.npz", "h of 'nan.npz': 4 of 4 numbers are not finite, first at round 0, device 0"),
        ("paths.npz", r"a of 'paths.npz' has the shape .* \(round, device, antenna, path\)"),
        ("delays.npz", "channel.path: 'delays.npz' lacks tau_s"),
        ("other.npz", "channel.path: 'other.npz' lacks h_real, h_imag"),
        ("band.npz", "the attribute bandwidth_hz of 'band.npz' must be a positive number"),
        ("none.npy", "channel.path: there is no file 'none.npy'"),
    ]
    monkeypatch.chdir(tmp_path)
    objects = np.array([{"a": 1}], object)
    np.save("shape.npy", make(3))
    np.save("pickled.npy", objects, allow_pickle=True)
    head = np.lib.format.magic(1, 0)
    text = b"{'descr': '<c16', 'fortran_order': False, 'shape': (9999999999999, 9999), }\n"
    Path("huge.npy").write_bytes(head + len(text).to_bytes(2, "little") + text)
    np.savez("nan.npz", h=np.full((2, 2), np.nan + 1j))
    np.savez("paths.npz", a=make(2, 2), tau_s=np.zeros((2, 1)))
    np.savez("delays.npz", a=make(2, 2, 1, 3), x=np.zeros(1))
    np.savez("other.npz", u=make(2, 2), v=make(2, 2))
    np.savez("band.npz", h=make(2, 2), bandwidth_hz=-1.0)
    assert_refused(read, cases)


def test_real_numbers_are_refused(tmp_path: Path) -> None:
    def read_saved(numbers: np.ndarray) -> None:
        np.save(tmp_path / "h.npy", numbers)
        read(str(tmp_path / "h.npy"))

    cases = [
        (np.ones((2, 2)), r"h.npy': got float64 \[2, 2\]; .* of parts x and y save x \+ 1j \* y"),
        (np.ones((2, 2), int), "got int64"),
        (np.ones((2, 3), bool), "got the type bool"),
    ]
    assert_refused(read_saved, cases)


H = make(3, 2)
PLACES = np.array(list(np.ndindex(3, 2)))
TABLE = np.column_stack([PLACES, H.real.ravel(), H.imag.ravel()])
NAMES = "round,device,real,imag"
FRAME = pd.DataFrame(PLACES, columns=["round", "device"]).assign(h=H.ravel())


@pytest.mark.parametrize(
    "save",
    [
        lambda path: np.savetxt(path, H, delimiter=",", header="measured in 2024, by us"),
        lambda path: np.savetxt(path, TABLE, header=NAMES.replace(",", " "), comments="#\n# "),
        lambda path: np.savetxt(
            path, np.column_stack([PLACES, H.ravel()]), header="round device h"
        ),
        lambda path: FRAME.sample(frac=1.0, random_state=0).to_csv(path),
        lambda path: pd.DataFrame(H).to_csv(path),
        lambda path: path.write_text(
            "\ufeff\n# channels\n\n"
            + "\n \n,,,\n".join([NAMES, *(", ".join(map(repr, row)) for row in TABLE.tolist())])
        ),
    ],
)
def test_tables_that_numpy_and_pandas_write(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "h.csv")
    assert np.array_equal(read(str(tmp_path / "h.csv")).response[..., 0, 0], H)


def test_tables_with_a_fault_are_refused(tmp_path: Path) -> None:
    cases = [
        (
            "round,device,real,imag\n0,0.5,1,0\n",
            "line 2: .* whole numbers from 0 in round, device, got 0, 0.5",
        ),
        ("round,device,real,imag\n-1,0,1,0\n", "line 2: expected whole numbers"),
        ("round,device,h\n0,0,1\n0,(0+1j),1\n", "line 3: expected whole numbers"),
        (
            "round,device,real,imag\n0,0,1,0\n0,1,,0\n",
            "line 3: expected numbers such as .* 0, 1, , 0",
        ),
        ("round,device,real,imag\n0,0,1\n", "line 2: expected numbers .* in 4 columns"),
        ("# x\n\nround,device,h\n0,0,1+2i\n", r"line 4: expected numbers such as 0.5 or \(1\+2j\)"),
        ("round,device,h\n0,0,nan+1j\n", "1 of 1 numbers is not finite"),
        (
            "round,device,real\n0,0,1\n",
            "has the columns round, device, real .*; expected .* imag or h",
        ),
        ("round,device,h\n", r"has the columns round, device, h \(rows: 0\)"),
        ("1j,2j\n1j\n", "line 2: expected numbers .* in 2 columns"),
        ("round;device;h\n0;0;1j\n", "line 1: .* got round;device;h"),
    ]

    def read_text(text: str) -> None:
        (tmp_path / "h.csv").write_text(text)
        read(str(tmp_path / "h.csv"))

    assert_refused(read_text, [(one, f"channel.path: '.*h.csv'.*{said}") for one, said in cases])


def test_archive_that_grows_beyond_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "h.npz", h=np.ones((100, 100)))
    monkeypatch.setattr("otafl.channels.trace_arrays.MAX_BYTES", 1 << 16)
    with pytest.raises(otafl.UserError, match="a trace is kept in memory; use fewer rounds"):
        read(str(tmp_path / "h.npz"))


def test_what_is_no_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[Any, str]] = [
        (make(3), r"the array has the shape \(3,\); expected \(round, device"),
        (np.zeros((0, 2), complex), r"has the shape \(0, 2\)"),
        (np.array([["a", "b"]]), "the array: got the type str"),
        (np.array([[1, np.nan + 1j]]), "1 of 2 numbers is not finite, first at round 0, device 1"),
        (np.ma.array(make(2, 2), mask=np.eye(2)), "the array: 2 of 4 values are masked"),
        (make(2, 2).astype(object), "the array: got the type object; expected complex numbers"),
        ("h.mat", r"'h.mat' ends in none of .npy, .npz, .csv; save its array .*scipy.io.loadmat"),
        ("no.npy", r"'no.npy' cannot be read \(No such file or directory\)"),
        (
            "columns.csv",
            "line 1: .* got a, b; .* round, device, antenna, group, and real",
        ),
        ("empty.csv", r"has the columns none \(rows: 0\); expected the columns round, device"),
        ("missing.csv", r"has 2 rows, and its numbers make the shape \(2, 2, 1, 1\)"),
        ("words.csv", "'words.csv', line 2: expected numbers"),
    ]
    monkeypatch.chdir(tmp_path)
    head = "round,device,real,imag\n"
    Path("columns.csv").write_text("a,b\n1,2\n")
    Path("empty.csv").write_text("")
    Path("missing.csv").write_text(f"{head}0,0,1,0\n1,1,1,0\n")
    Path("words.csv").write_text(f"{head}0,x,1,0\n")
    assert_refused(lambda source: otafl.convert_trace(source, "h.nc", **HERTZ), cases)
    with pytest.raises(otafl.UserError, match="bandwidth_hz: got 0; must be a positive"):
        otafl.convert_trace(make(2, 2), "h.nc", carrier_hz=1e9, bandwidth_hz=0)
    assert not Path("h.nc").exists()
