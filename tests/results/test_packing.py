"""Finished parts in fewer files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from contract.test_sweeps import same
from support.parts import make_parts, make_scenario

from otafl import open_results
from otafl.core.errors import UserError
from otafl.results import packing as packs
from otafl.results.dataset import combine
from otafl.results.files import read_part, write_part
from otafl.results.packing import count_finished_stacks, pack

pytestmark = pytest.mark.exact


def written(folder: Path, stacks: int, first: int = 0) -> list[Path]:
    """So many parts of a point each of a sweep over 40 seeds."""
    parts = make_parts(make_scenario({"seed": list(range(40))}))[first : first + stacks]
    paths = [folder / "parts" / f"{first + i:05d}.nc" for i in range(len(parts))]
    for i, (part, path) in enumerate(zip(parts, paths, strict=True)):
        write_part(part.assign_attrs(stacks=[first + i]), path)
    return paths


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.nc"))


@pytest.mark.slow
def test_files_of_a_level_make_one_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they come, two at a time: 1 + 1 = 2, 2 + 2 = 4."""
    monkeypatch.setattr(packs, "AT_ONCE", 2)
    whole = combine(make_parts(make_scenario({"seed": list(range(40))}))[:7])
    seen = []
    for i in range(7):
        written(tmp_path, 1, first=i)
        pack(tmp_path)
        seen.append(len(names(tmp_path)))
        assert count_finished_stacks(tmp_path) == i + 1
    assert seen == [1, 1, 2, 1, 2, 2, 3]  # the ones in the binary numbers
    same(open_results(tmp_path), whole)
    pack(tmp_path, finished=True)
    assert len(names(tmp_path)) == 1
    same(open_results(tmp_path), whole)


def test_a_finished_sweep_of_packs_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two packs and a part, fewer than make a pack of the next level."""
    monkeypatch.setattr(packs, "AT_ONCE", 3)
    written(tmp_path, 7)
    pack(tmp_path)
    assert names(tmp_path) == ["packs/1-00000.nc", "packs/1-00001.nc", "parts/00006.nc"]
    pack(tmp_path, finished=True)
    assert len(names(tmp_path)) == 1
    same(open_results(tmp_path), combine(make_parts(make_scenario({"seed": list(range(40))}))[:7]))
    left = names(tmp_path)
    pack(tmp_path, finished=True)
    assert names(tmp_path) == left


def test_few_parts_stay_as_they_are(tmp_path: Path) -> None:
    paths = written(tmp_path, 3)
    pack(tmp_path, finished=True)
    assert sorted(tmp_path.rglob("*.nc")) == paths


def test_large_files_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "AT_ONCE", 2)
    monkeypatch.setattr(packs, "LARGE_BYTES", 100)
    paths = written(tmp_path, 3)
    pack(tmp_path, finished=True)
    assert sorted(tmp_path.rglob("*.nc")) == paths


def test_a_damaged_part_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "AT_ONCE", 3)
    written(tmp_path, 3)[1].write_bytes(b"damaged")
    pack(tmp_path)
    assert names(tmp_path) == ["packs/1-00000.nc", "parts/00001.nc"]
    assert list(read_part(tmp_path / "packs" / "1-00000.nc").attrs["stacks"]) == [0, 2]
    with pytest.raises(UserError, match=r"parts/00001.nc: is damaged"):
        open_results(tmp_path)


def test_dying_before_the_parts_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points are then in two files, and count once."""
    monkeypatch.setattr(packs, "AT_ONCE", 3)
    first = written(tmp_path, 3)[0]
    kept = first.read_bytes()
    pack(tmp_path)
    first.write_bytes(kept)
    assert count_finished_stacks(tmp_path) == 3
    result = open_results(tmp_path)
    assert int(result["final_round"].notnull().sum()) == 3
    same(result, combine(make_parts(make_scenario({"seed": list(range(40))}))[:3]))


@pytest.mark.slow
def test_ten_thousand_points_open_at_once(tmp_path: Path) -> None:
    """In packs as a sweep of a thousand stacks of ten points has them half way: opened in seconds,
    with every number where it belongs. The bound is ten times what it takes."""
    scenario = make_scenario({"seed": list(range(100)), "channel.snr_db": list(range(100))})
    every = list(range(10_000))
    groups = [every[:8192], *(every[i : i + 512] for i in range(8192, 9728, 512)), every[9728:]]
    for i, part in enumerate(make_parts(scenario, groups)):
        write_part(part.assign_attrs(stacks=[i]), tmp_path / "parts" / f"{i:05d}.nc")
    began = time.perf_counter()
    result = open_results(tmp_path)
    took = time.perf_counter() - began
    assert result.sizes["snr_db"] == result.sizes["seed"] == 100
    assert float(result["test_accuracy"].sel(seed=97, snr_db=13, trial=1, round=4)) == 9_713_140
    assert np.isfinite(result["tx_energy_j"]).all()
    assert took < 50
