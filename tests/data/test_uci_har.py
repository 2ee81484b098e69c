"""Windows of people from small files as the official archive has them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.file_server import serve
from support.small_sets import WINDOWS, write_uci_har

from otafl.core.errors import UserError
from otafl.data.dataset import DataSet
from otafl.data.files import fetch, list_available
from otafl.data.loading import load
from otafl.data.uci_har import UciHar

HOME = "uci_har/UCI HAR Dataset"


def read(root: Path, **keys: Any) -> DataSet:
    write_uci_har(root / "uci_har")
    return load(UciHar(root=str(root), **keys))


@pytest.mark.exact
def test_windows_of_people(tmp_path: Path) -> None:
    data = read(tmp_path, test="official")
    assert (data.x_train.shape, data.x_test.shape, data.classes) == ((5, 561), (3, 561), 6)
    np.testing.assert_array_equal(data.x_train, np.repeat(data.y_train[:, None] / 8, 561, 1))
    for owner, y, part in (
        (data.owner, data.y_train, "train"),
        (data.owner_test, data.y_test, "test"),
    ):
        assert sorted(zip(y, owner, strict=True)) == [
            (i, p - 1) for i, p in enumerate(WINDOWS[part])
        ]


@pytest.mark.exact
def test_signals_are_sequences_of_nine(tmp_path: Path) -> None:
    data = read(tmp_path, test="official", inputs="signals")
    time, signal = np.ogrid[:128, :9]
    expected = data.y_train[:, None, None] + signal / 10 + time / 1000
    np.testing.assert_allclose(data.x_train, expected, atol=1e-6)


def test_by_default_every_person_trains(tmp_path: Path) -> None:
    data = read(tmp_path)
    assert (len(data.y_train), len(data.y_test)) == (8, 0)
    assert sorted(data.owner) == sorted(p - 1 for part in WINDOWS.values() for p in part)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (
            "train/X_train.txt",
            "1 2 3\n",
            "5 lines of 561 numbers in X_train.txt, .* got 1 lines of 3",
        ),
        (
            "train/y_train.txt",
            "1\n2\n3\n7\n1\n",
            "uci_har.* labels",
        ),
        (
            "test/subject_test.txt",
            "1\n",
            "3 lines of 1 numbers in subject_test.txt, .* got 1 lines",
        ),
        ("test/y_test.txt", "one\n", "not lines of numbers"),
    ],
)
def test_other_files_are_refused_in_a_sentence(
    tmp_path: Path, file: str, text: str, said: str
) -> None:
    write_uci_har(tmp_path / "uci_har")
    (tmp_path / HOME / file).write_text(text)
    with pytest.raises(UserError, match=said):
        load(UciHar(root=str(tmp_path)))


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"X_train.txt of uci_har is not in .*data get uci_har"):
        load(UciHar(root=str(tmp_path)))


def test_the_archive_is_unpacked_and_then_has_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authors publish no checksum, so those of the unpacked files are written beside them."""
    write_uci_har(tmp_path / "official")
    shutil.make_archive(str(tmp_path / "served" / "UCI HAR Dataset"), "zip", tmp_path / "official")
    monkeypatch.setenv("NO_PROXY", "*")
    (download,) = UciHar.files.downloads
    with serve(tmp_path / "served") as url:
        here = replace(download, url=f"{url}/{download.file}")
        monkeypatch.setattr(UciHar, "files", replace(UciHar.files, downloads=(here,)))
        fetch("uci_har", str(tmp_path))
    assert dict(row[:2] for row in list_available(str(tmp_path)))["uci_har"] == "yes"
    assert len(load(UciHar(root=str(tmp_path))).y_train) == 8
    (tmp_path / HOME / "train" / "y_train.txt").write_text("1\n")
    with pytest.raises(UserError, match=r"y_train.txt is not the published file of uci_har"):
        load(UciHar(root=str(tmp_path)))
