"""YAML blocks of pages load and pass the check as they stand."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.pages import BLOCK

from otafl import cli
from otafl.data.files import DATA_DIR
from otafl.scenario.yaml_source import parse

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
WALK = "time_s,device,x_m,y_m\n" + "".join(
    f"{second},{device},{130 + device + second / 1000},90\n"
    for device in range(10)
    for second in (0, 50_000)
)
SCENE = ROOT / "otafl" / "channels" / "scenes" / "florence.npz"
FILES = {
    "weights.csv": "0.5,0.25,0.25\n0.25,0.5,0.25\n0.25,0.25,0.5\n",
    "devices.csv": "flops_per_s\n1e9\n",
    "traces/phones.csv": "device,start_s,end_s\n0,0,100\n",
    "positions.csv": WALK,
    "walk.csv": WALK,
}
"""What blocks name beside `high.npz`."""
NEED_MODULES = {"cost", "extending"}
"""Pages whose blocks name modules that the page writes; tests/golden/test_custom.py runs them."""


def yaml_blocks(page: Path) -> list[str]:
    """Return the YAML blocks of a page that are scenarios, or parts of one."""
    found = BLOCK.findall(page.read_text())
    return [text for kind, text in found if kind == "yaml" and "apiVersion:" not in text]


WITH_BLOCKS = [page for page in PAGES if page.stem not in NEED_MODULES and yaml_blocks(page)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that blocks name, and no data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATA_DIR, str(tmp_path / "none"))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(SCENE, tmp_path / "high.npz")
    np.save(tmp_path / "decibel.npy", np.full((20, 10), -3.0))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("fewest_states")
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_blocks_pass_the_check(page: Path, home: Path, capsys: pytest.CaptureFixture) -> None:
    """`otafl check` rehearses a round, which finds what settings do not tell by themselves."""
    for text in yaml_blocks(page):
        named = "" if "name" in parse(text).data else "name: block\n"
        (home / "block.yaml").write_text(named + text)
        with pytest.raises(SystemExit) as left:
            cli.main(["check", "block.yaml"])
        told = capsys.readouterr().err
        absent = ("needs a package", ".safetensors cannot be read", "No module named 'my_model'")
        assert not left.value.code or any(one in told for one in absent), (text, told)
