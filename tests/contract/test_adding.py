"""Adding a component is one new file and one word in the registry: what lists, checks, describes,
documents and tests components finds it by itself.

Components are added to a copy of the package, each the file of another under a new name. It fails
if the summary, settings, needs or state of a component are also said anywhere else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otafl.core import registry

ROOT = Path(__file__).parents[2]
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

VALIDATE = """
import sys
from otafl.validation import report, suite
from otafl.validation.bench import Bench
laws = suite.list_laws("channel: mean power") + suite.list_laws("power: ")
rows = report.build_rows(suite.run(Bench("cpu", quick=True), laws))
assert [row for row in rows if not row["pass"]] == []
assert [name for name in sys.argv[1:] if not any(name in row["case"] for row in rows)] == []
"""
"""What `otafl validate --quick` does for registered channels and policies, which must include
several names."""

CALL = """
import sys
from otafl import cli
for text in sys.argv[1:]:
    try:
        cli.main(text.split())
    except SystemExit as left:
        if left.code:
            raise
"""
"""Commands of otafl, one after another in one program."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, the tests and the site's sources, with what is compiled of them,
    and the new files in them."""
    home = tmp_path_factory.mktemp("adding")
    for part in ("otafl", "tests", "docs", "results", "scenarios", "studies"):
        results = ["data"] if part == "studies" else []
        leave_out = shutil.ignore_patterns("reference", "test_adding.py", *results)
        shutil.copytree(ROOT / part, home / part, ignore=leave_out)
    for part in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / part, home)
    words = home / "otafl" / "core" / "registry.py"
    for table, (old, new) in ADDED.items():
        module = registry.TABLES[table].modules[old].replace(".", "/")
        source = (home / f"{module}.py").read_text()
        assert f'Literal["{old}"] = "{old}"' in source
        source = source.replace(f'Literal["{old}"] = "{old}"', f'Literal["{new}"] = "{new}"')
        source = re.sub(r'\A"""[^\n"]*', f'"""Do what the test calls {new}.', source)
        module = (home / module).with_name(f"{new}.py")
        module.write_text(source)
        name(words, table, old, new, module)
    return home


def name(words: Path, table: str, before: str, new: str, module: Path) -> None:
    """Write the word of a component into the registry."""
    text = words.read_text()
    begin = text.index(f'    "{table}": "')
    found = re.compile(rf"\b{re.escape(before)}(@[\w.]+)?").search(text, begin + len(table) + 6)
    assert found
    folder = words.parents[1] / registry.TABLES[table].folder.replace(".", "/")
    inner = ".".join(module.relative_to(folder).with_suffix("").parts)
    word = new if inner == new else f"{new}@{inner}"
    words.write_text(f"{text[: found.end()]} {word}{text[found.end() :]}")


def python(home: Path, *arguments: str) -> str:
    """What a Python with the copy prints; it must end well."""
    environment = os.environ | {"PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_it_is_listed(copy: Path) -> None:
    said = python(copy, "-m", "otafl.cli", "list")
    for _, new in ADDED.values():
        assert new in said


@pytest.mark.slow
def test_a_scenario_with_them_is_valid_and_runs(copy: Path) -> None:
    tree: dict[str, object] = {"name": "added", "training": {"rounds": 1}, "devices": {"count": 2}}
    for table, (_, new) in ADDED.items():
        section = tree
        *path, last = registry.TABLES[table].path
        for part in path:
            section = section.setdefault(part, {})
        section[last] = new
    (copy / "added.yaml").write_text(yaml.safe_dump(tree))
    commands = "check added.yaml", "run added.yaml --out added.nc --quiet"
    filled = python(copy, "-c", CALL, *commands)
    for _, new in ADDED.values():
        assert f"name: {new}" in filled
    assert (copy / "added.nc").is_file()


@pytest.mark.slow
def test_it_is_in_the_schema_and_on_the_site(copy: Path) -> None:
    code = (
        "import json, sys; sys.path.insert(0, 'docs/_ext'); from otafl_docs import pages; "
        "from otafl.scenario import build_json_schema; "
        "print(json.dumps([build_json_schema(), dict(pages.generated())]))"
    )
    schema, site = json.loads(python(copy, "-c", code))
    for table, (_, new) in ADDED.items():
        page = f"{table}/{new}" if f"{table}/{new}.rst" in site else table
        anchor = f"entry-{table}-{new}".replace("_", "-")
        assert f".. _{anchor}:" in site[f"{page}.rst"]
        assert f"<{anchor}>" in site["choices.rst"]
        assert f"Do what the test calls {new}".replace("_", r"\_") in site[f"{page}.rst"]
        assert f'"title": "{new}"' in json.dumps(schema)


def held(home: Path, *arguments: str) -> str:
    """The tests that a part of the suite has passed, a line each."""
    said = python(home, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rA", *arguments)
    return "\n".join(line for line in said.splitlines() if line.startswith("PASSED"))


@pytest.mark.slow(seconds=20)
def test_the_contracts_are_held_to_it(copy: Path) -> None:
    """The contract suite runs for each, and the closed forms for the channel and the policy."""
    chosen = " or ".join(new for _, new in ADDED.values())
    tests = held(copy, "tests/contract", "tests/power/test_base.py", "-k", chosen)
    for table in ("power", "algorithm", "codec", "transport"):
        assert ADDED[table][1] in tests, table
    python(copy, "-c", VALIDATE, "loud", "still")
