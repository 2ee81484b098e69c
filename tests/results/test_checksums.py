"""Files of otafl are compared with their SHA-256: a bit that flips anywhere is noticed."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from contract.small import scenario
from support.parts import compute_value, make_parts, make_scenario

from otafl import open_results, sweeping
from otafl.core.errors import DamagedError
from otafl.results import checksums, plain_data
from otafl.results import models as trained
from otafl.results.files import read_part, write_part
from otafl.results.models import TrainedModels, TrainedView

pytestmark = pytest.mark.exact

FLIPS = 60


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def flips(path: Path) -> list[int]:
    """Bits all over a file, and those of its checksum and what is before it."""
    size, chance = 8 * path.stat().st_size, random.Random(1)
    return [chance.randrange(size) for _ in range(FLIPS)] + list(range(size - 850, size, 13))


def a_result(path: Path) -> None:
    write_part(make_parts(make_scenario({"power.name": ["gbma", "ci"]}))[0], path)


def models(path: Path) -> None:
    view = TrainedView({"model": "mlp"}, {"w": torch.arange(60.0).reshape(2, 1, 5, 6)}, None)
    trained.write(TrainedModels([(0, 0), (0, 1)], {"global": view}), path, scenario({}))


def save_plain_data(path: Path) -> None:
    plain_data.save({"state": torch.arange(50.0), "rounds": 3, "texts": ["a", "b"]}, path)


WRITERS = {"a.nc": a_result, "models.pt": models, "plain.pt": save_plain_data}
READERS = {"a.nc": read_part, "models.pt": trained.read, "plain.pt": plain_data.load}


@pytest.mark.parametrize("name", WRITERS)
def test_a_flipped_bit_is_noticed(name: str, tmp_path: Path) -> None:
    """In the values, in what is said of them, in the format's own bytes, in the checksum."""
    path, read = tmp_path / name, READERS[name]
    WRITERS[name](path)
    read(path)
    assert checksums.check(path)
    whole = path.read_bytes()
    for bit in flips(path):
        path.write_bytes(flipped(whole, bit))
        with pytest.raises((DamagedError, checksums.ChecksumError)):
            read(path)
    path.write_bytes(whole)
    read(path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_short_is_noticed(name: str, tmp_path: Path) -> None:
    path, read = tmp_path / name, READERS[name]
    WRITERS[name](path)
    whole = path.read_bytes()
    for left in (len(whole) - 1, len(whole) - 76, len(whole) - 200, len(whole) // 2, 30, 8, 1, 0):
        path.write_bytes(whole[:left])
        with pytest.raises(Exception) as raised:  # noqa: PT011  torch's own, of some lengths
            read(path)
        assert raised.type.__name__ != "AssertionError"


@pytest.mark.parametrize("name", ["models.pt", "plain.pt"])
def test_an_archive_without_a_checksum_is_compared_with_its_crc(name: str, tmp_path: Path) -> None:
    """As files are that older versions wrote, and those of `torch.save`."""
    path = tmp_path / name
    WRITERS[name](path)
    torch.save(torch.load(path, weights_only=True), path)
    assert not checksums.check(path)
    READERS[name](path)
    whole = path.read_bytes()
    place = whole.index(np.arange(20, dtype=np.float32).tobytes()[4:])
    for bit in range(8 * place, 8 * place + 64, 5):
        path.write_bytes(flipped(whole, bit))
        with pytest.raises((DamagedError, checksums.ChecksumError)):
            READERS[name](path)


def test_the_error_comes_whole_from_a_worker(tmp_path: Path) -> None:
    a_result(tmp_path / "a.nc")
    with (tmp_path / "a.nc").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DamagedError) as raised:
        read_part(tmp_path / "a.nc")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.reason) == (str(raised.value), "it does not end as it was written")


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    """xarray and torch as they are; what they write again has no checksum, and opens."""
    a_result(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as dataset:
        assert float(dataset.load()["test_accuracy"][0, 1, 2]) == compute_value(0, 1, 4)
        dataset.assign_attrs(note="mine").to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    assert not checksums.check(tmp_path / "b.nc")
    assert read_part(tmp_path / "b.nc").attrs["note"] == "mine"
    models(tmp_path / "m.pt")
    for mapped in (False, True):
        kept = torch.load(tmp_path / "m.pt", weights_only=True, mmap=mapped)
        assert kept["views"]["global"]["blocks"]["w"].sum() == sum(range(60))


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    """`torch.save` makes none, and a small one can hold very much."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"0" * 10**6)
    with pytest.raises(checksums.ChecksumError, match="compressed"):
        checksums.check(tmp_path / "a.pt")


@pytest.mark.slow
def test_a_flipped_bit_in_a_folder_is_computed_anew(tmp_path: Path) -> None:
    """A part, and a checkpoint, whose attributes and values one bit changes: to the same bits."""
    one = scenario({"training.rounds": 3, "trials": 1})
    whole = sweeping.sweep(one, tmp_path / "whole").load()

    def stop(done: int, total: int, note: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(one, tmp_path / "s", stop, checkpoint_every=1)
    (file,) = (tmp_path / "s" / "running").glob("*.checkpoint.pt")
    kept = file.read_bytes()
    file.write_bytes(flipped(kept, 4 * len(kept)))
    said: list[str] = []
    calls: list[int] = []
    sweeping.sweep(
        one, tmp_path / "s", lambda d, t, n: calls.append(d), checkpoint_every=1, tell=said.append
    )
    assert calls == [1, 2, 3]
    assert "it is damaged: its SHA-256 is not" in said[0]
    part = tmp_path / "s" / "parts" / "00000.nc"
    part.write_bytes(flipped(part.read_bytes(), 8 * part.read_bytes().index(b"name: small") + 1))
    with pytest.raises(DamagedError, match=r"00000.nc: is damaged \(its SHA-256"):
        open_results(tmp_path / "s")
    again = sweeping.sweep(one, tmp_path / "s", tell=said.append)
    np.testing.assert_array_equal(again["test_loss"], whole["test_loss"])
    assert "00000.nc" in said[-1]
