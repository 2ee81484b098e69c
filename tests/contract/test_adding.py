"""Adding a component is one new file and one word in the registry: what lists, checks and runs
components finds it by itself.

Components are added to a copy of the package, each the file of another under a new name. It fails
if the summary, settings, needs or state of a component are also said anywhere else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otafl.core import registry

ADDED = {
    "power": ("full", "loud"),
    "channel": ("awgn", "still"),
    "algorithm": ("fedavg", "plain_mean"),
    "codec": ("topk", "largest"),
    "transport": ("ideal", "by_hand"),
    "data": ("digits", "numerals"),
    "compute": ("fixed", "alike"),
}
"""Table -> the component whose file is copied, and the new one's name."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, the new files and their words in the registry."""
    home = tmp_path_factory.mktemp("adding")
    shutil.copytree(Path(__file__).parents[2] / "otafl", home / "otafl")
    words = home / "otafl" / "core" / "registry.py"
    for table, (old, new) in ADDED.items():
        module = home / f"{registry.TABLES[table].modules[old].replace('.', '/')}.py"
        name = 'Literal["{0}"] = "{0}"'
        source = module.read_text().replace(name.format(old), name.format(new))
        source = re.sub(r'\A"""[^\n"]*', f'"""Do what the test calls {new}.', source)
        module.with_name(f"{new}.py").write_text(source)
        folder = home / "otafl" / registry.TABLES[table].folder.replace(".", "/")
        inner = ".".join(module.with_name(new).relative_to(folder).parts)
        text = words.read_text()
        begin = text.index("; ", text.index(f'    "{table}": "'))
        words.write_text(f"{text[:begin]}; {inner}: {new}{text[begin:]}")
    return home


def call(home: Path, *arguments: str) -> str:
    """What a command of the copy prints; it must end well."""
    environment = os.environ | {"PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "otafl.cli", *arguments]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed(home: Path) -> None:
    said = call(home, "list")
    for _, new in ADDED.values():
        assert new in said


@pytest.mark.slow
def test_a_scenario_with_them_is_valid_and_runs(home: Path) -> None:
    tree: dict[str, object] = {"name": "added", "training": {"rounds": 1}, "devices": {"count": 2}}
    for table, (_, new) in ADDED.items():
        section = tree
        *path, last = registry.TABLES[table].path
        for part in path:
            section = section.setdefault(part, {})
        section[last] = new
    (home / "added.yaml").write_text(yaml.safe_dump(tree))
    filled = call(home, "check", "added.yaml")
    for _, new in ADDED.values():
        assert f"name: {new}" in filled
    call(home, "run", "added.yaml", "--out", "added.nc", "--quiet")
    assert (home / "added.nc").is_file()
