"""The recordings are read person by person in the order of time, and split there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.small_sets import PEOPLE, write_parkinsons

from otafl.core import checksums
from otafl.core.errors import UserError
from otafl.data import files
from otafl.data.dataset import DataSet
from otafl.data.loading import load
from otafl.data.parkinsons import Parkinsons


def read(root: Path, **keys: Any) -> DataSet:
    write_parkinsons(root / "parkinsons")
    return load(Parkinsons(root=str(root), **keys))


@pytest.mark.exact
def test_each_person_is_split_in_time(tmp_path: Path) -> None:
    data = read(tmp_path, test="official")
    kept = [int(0.75 * count) for count in PEOPLE]
    assert np.bincount(data.owner).tolist() == kept
    assert np.bincount(data.owner_test).tolist() == [
        count - own for count, own in zip(PEOPLE, kept, strict=True)
    ]
    for person in range(len(PEOPLE)):
        time = data.time[data.owner == person]
        assert (np.diff(time) > 0).all()
        assert data.time_test[data.owner_test == person].min() > time.max()
    scores = 10.0 * (data.owner + 1) + 0.5 * data.time / 7.0
    scaled = (scores - scores.mean()) / scores.std()
    np.testing.assert_allclose(data.y_train[:, 0], scaled, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(",PPE", ",XYZ"), "PPE is missing"),
        (lambda text: text + "1,2,3\n", "needs a finite number in each of 22 columns"),
        (lambda text: "", "not a CSV file"),
    ],
)
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, change: Any, said: str) -> None:
    write_parkinsons(tmp_path / "parkinsons")
    path = tmp_path / "parkinsons" / "parkinsons_updrs.data"
    path.write_text(change(path.read_text()))
    checksums.write(path)
    with pytest.raises(UserError, match=said):
        load(Parkinsons(root=str(tmp_path)))


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Neither the published checksum nor the one beside the file fits, and both are compared."""
    read(tmp_path)
    path = tmp_path / "parkinsons" / "parkinsons_updrs.data"
    good = path.read_bytes()
    path.write_bytes(good[:-3] + bytes([good[-3] ^ 4]) + good[-2:])
    os.utime(path, (1, 1))
    with pytest.raises(UserError, match=r"is not the published file of parkinsons.*data get"):
        load(Parkinsons(root=str(tmp_path)))
    states = {name: state for name, state, *_ in files.list_available(str(tmp_path))}
    assert (states["parkinsons"], states["shakespeare"]) == ("damaged", "no")
    path.write_bytes(good)
    os.utime(path, (2, 2))
    load(Parkinsons(root=str(tmp_path)))
    checksums.get_path(path).unlink()
    with pytest.raises(UserError, match="is not the published file"):
        load(Parkinsons(root=str(tmp_path)))


def test_a_split_without_test_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leaves none for training or test"):
        read(tmp_path, test_share=0.9)
