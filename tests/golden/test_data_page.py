"""docs/data.md: its blocks, run one after the other as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.test_docs import DOCS, run_blocks

from otafl import open_results

pytestmark = pytest.mark.slow


def test_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("flwr_datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    names = run_blocks(DOCS / "data.md", monkeypatch, tmp_path)
    assert dict(names["counts"].sizes) == {"device": 12, "class": 10}
    assert float(open_results("results/saved.nc")["test_accuracy"][0, -1]) > 0.3
    for file in ("saved_partition.png", "skew_partition.png", "skew.csv", "skew.png"):
        assert Path(file).stat().st_size > 1000
