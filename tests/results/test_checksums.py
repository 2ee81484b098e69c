"""Files of otafl are compared with their SHA-256: a bit that flips anywhere is noticed."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
import torch
from contract.small import scenario
from support.parts import make_parts, make_scenario

from otafl.core import checksums
from otafl.core.errors import DamagedError, UserError
from otafl.results import models as trained
from otafl.results.files import read_part, write_part
from otafl.results.models import TrainedModels, TrainedView

pytestmark = pytest.mark.exact

FLIPS = 20


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit changed."""
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def a_result(path: Path) -> None:
    write_part(make_parts(make_scenario({"power.name": ["gbma", "ci"]}))[0], path)


def models(path: Path) -> None:
    view = TrainedView({"model": "mlp"}, {"w": torch.arange(60.0).reshape(2, 1, 5, 6)}, None)
    trained.write(TrainedModels([(0, 0), (0, 1)], {"global": view}), path, scenario({}))


def save_plain_data(path: Path) -> None:
    trained.save_plain({"state": torch.arange(50.0), "rounds": 3, "texts": ["a", "b"]}, path)


WRITERS = {"a.nc": a_result, "models.pt": models, "plain.pt": save_plain_data}
READERS = {"a.nc": read_part, "models.pt": trained.read, "plain.pt": trained.load_plain}


@pytest.mark.parametrize("name", WRITERS)
def test_a_flipped_bit_or_a_cut_is_noticed(name: str, tmp_path: Path) -> None:
    """Anywhere in the file: in its values, in what is said of them, in the format's own bytes."""
    path, read = tmp_path / name, READERS[name]
    WRITERS[name](path)
    assert checksums.check(path)
    whole = path.read_bytes()
    chance = random.Random(1)
    changed = [flipped(whole, chance.randrange(8 * len(whole))) for _ in range(FLIPS)]
    changed += [whole[:left] for left in (len(whole) - 1, len(whole) // 2, 8, 1, 0)]
    for data in [*changed, whole + b"more"]:
        path.write_bytes(data)
        with pytest.raises((UserError, checksums.ChecksumError)):
            read(path)
    path.write_bytes(whole)
    read(path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_without_a_checksum_opens(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    checksums.forget(path)
    assert not checksums.check(path)
    READERS[name](path)


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    """In either of its two forms, of one file or of all in a folder; other lines are ignored."""
    path = tmp_path / "a b.nc"
    path.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    checksums.write(path)
    assert checksums.get_path(path).read_text() == f"{digest}  a b.nc\n"
    checksums.forget(path)
    for text in (f"{digest}  other.nc\n", "no digest  a b.nc\n", ""):
        (tmp_path / "SHA256SUMS").write_text(text)
        assert not checksums.check(path)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  other.nc\n{digest} *a b.nc\n")
    assert checksums.check(path)
    path.write_bytes(b"abd")
    with pytest.raises(checksums.ChecksumError, match="its SHA-256 is not the one"):
        checksums.check(path)


def test_the_error_comes_whole_from_a_worker(tmp_path: Path) -> None:
    a_result(tmp_path / "a.nc")
    with (tmp_path / "a.nc").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DamagedError) as raised:
        read_part(tmp_path / "a.nc")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.reason) == (str(raised.value), raised.value.reason)
