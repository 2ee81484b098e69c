"""Traces from arrays and NumPy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.refusals import assert_refused

import otafl
from otafl.channels.trace_files import read

pytestmark = pytest.mark.exact

HERTZ = {"carrier_hz": 3.5e9, "bandwidth_hz": 1e6}


def make(*shape: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=shape) + 1j * generator.normal(size=shape)


@pytest.mark.parametrize(
    ("shape", "how"), [((3, 2), "array"), ((3, 2, 4), "npy"), ((3, 2, 4, 5), "npy")]
)
def test_responses_are_those_of_the_source(
    shape: tuple[int, ...], how: str, tmp_path: Path
) -> None:
    h, source = make(*shape), tmp_path / f"h.{how}"
    if how == "npy":
        np.save(source, h)
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


def test_archive_that_grows_beyond_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "h.npz", h=np.ones((100, 100)))
    monkeypatch.setattr("otafl.channels.trace_files.MAX_BYTES", 1 << 16)
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
        ("h.csv", r"'h.csv' ends in none of .npy, .npz; save its array .*numpy.loadtxt"),
        ("no.npy", r"'no.npy' cannot be read \(No such file or directory\)"),
    ]
    monkeypatch.chdir(tmp_path)
    assert_refused(lambda source: otafl.convert_trace(source, "h.nc", **HERTZ), cases)
    with pytest.raises(otafl.UserError, match="bandwidth_hz: got 0; must be a positive"):
        otafl.convert_trace(make(2, 2), "h.nc", carrier_hz=1e9, bandwidth_hz=0)
    assert not Path("h.nc").exists()
