"""Which files of the user's own a hash covers, and when they are imported anew."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otafl.core.errors import UserError
from otafl.user_code import loading, sources

pytestmark = pytest.mark.exact

FILES = {
    "own_top.py": "import own_beside, json\ndef f():\n    import own_late; return own_beside.X\n",
    "own_beside.py": "import own_far\nX = 1\ndef f():\n    return X\n",
    "own_far.py": "",
    "own_late.py": "",
    "own_other.py": "import own_top\n",
    "own_pack/__init__.py": "",
    "own_pack/deep/inner.py": "from ..shared import X\nimport own_far\ndef f():\n    return X\n",
    "own_pack/shared.py": "X = 1\n",
    "own_pack/.ipynb_checkpoints/shared-checkpoint.py": "X = 1\n",
}


def written(path: Path, text: str) -> None:
    """Files are all of one second, by which Python tells whether its bytecode is of them."""
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield tmp_path
    for name in [one for one in sys.modules if one.startswith("own_")]:
        del sys.modules[name]
    sources._imported.clear()


PACKED = {"own_pack/__init__.py", "own_pack/deep/inner.py", "own_pack/shared.py", "own_far.py"}


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("own_top:f", {"own_top.py", "own_beside.py", "own_far.py", "own_late.py"}),
        ("own_pack.deep.inner:f", PACKED),
        ("otafl.algorithms.baselines.fedavg:FedAvg", set()),  # whose version is kept
    ],
)
def test_what_is_covered(path: str, files: set[str], home: Path) -> None:
    assert set(loading.hash_sources(path, "power.name")) == files


def test_of_an_installed_module_its_own_package() -> None:
    """Beside it lies all that is installed."""
    covered = loading.hash_sources("yaml.nodes:Node", "power.name")
    assert set(covered) == {"yaml/*.py"}


@pytest.mark.parametrize(
    ("path", "file"),
    [("own_top:f", "own_beside.py"), ("own_pack.deep.inner:f", "own_pack/shared.py")],
)
def test_what_has_changed_since_its_import_is_refused(path: str, file: str, home: Path) -> None:
    """When a run begins, though the file is as long as it was and not a second older."""
    before = dict(loading.hash_sources(path, "x"))
    sources.check_unchanged()
    written(home / file, (home / file).read_text().replace("X = 1", "X = 2"))
    assert loading.hash_sources(path, "x") == before  # of the code that runs
    with pytest.raises(UserError, match=f"^{file}: changed after module .*start Python anew"):
        sources.check_unchanged()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("X = 1 # one\n\n\ndef f():\n\treturn  X\n", True),
        ("X = 1\ndef f():\n    return X + 0\n", False),
        ("X = 1" + " + 0" * 3000, False),  # deeper than Python's own tools can go
    ],
)
def test_comments_and_layout_are_no_change(text: str, same: bool, home: Path) -> None:
    importlib.import_module("own_beside")
    written(home / "own_beside.py", "X = 1\ndef f():\n    return X\n")
    first = sources._hash_files(sys.modules["own_beside"])
    written(home / "own_beside.py", text)
    assert (sources._hash_files(sys.modules["own_beside"]) == first) == same
