"""Where the files of data sets are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.small_sets import TRAIN, write_images

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.fashion_mnist import FashionMnist

pytestmark = pytest.mark.exact


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "fashion-mnist")
    return tmp_path


def test_root_comes_before_the_environment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTAFL_DATA_DIR", str(root))
    assert len(load(FashionMnist()).y_train) == TRAIN
    with pytest.raises(UserError, match="elsewhere"):
        load(FashionMnist(root=str(tmp_path / "elsewhere")))


def test_a_missing_file_says_what_to_do(root: Path) -> None:
    folder = root / "fashion-mnist"
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError) as error:
        load(FashionMnist(root=str(root)))
    for part in (
        "t10k-labels-idx1-ubyte.gz",
        str(folder),
        "otafl data get fashion_mnist",
        "data.root",
        "OTAFL_DATA_DIR",
    ):
        assert part in str(error.value)
