"""Every key of a scenario has an example: in a scenario, on a page, in a notebook or a script.

An example gives the key in its own section, of a component that has it. A mention in a sentence,
the generated reference and the tests are none. YAML blocks of pages must load as they stand.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from golden.test_docs import BLOCK
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from support.scenarios import SCENARIO_FILES

from otafl import cli
from otafl.core.choices import Choice, Section, get_choice
from otafl.core.settings import get_description
from otafl.data.files import DATA_DIR
from otafl.scenario import Scenario, load_scenario
from otafl.scenario.keys import CHOICES, list_classes, set_value, split
from otafl.scenario.yaml_source import parse

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
SCRIPTS = sorted([*(ROOT / "scripts").glob("*.py"), *(ROOT / "studies").rglob("*.py")])
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCENE = ROOT / "otafl" / "channels" / "scenes" / "florence.nc"
FILES = {
    "weights.csv": "0.5,0.25,0.25\n0.25,0.5,0.25\n0.25,0.25,0.5\n",
    "devices.csv": "flops_per_s\n1e9\n",
    "traces/phones.csv": "device,start_s,end_s\n0,0,100\n",
}
"""What blocks name beside `high.nc`."""
NEED_MODULES = {"extending"}
"""Pages whose blocks name modules that the page writes; tests/golden/test_custom.py runs them."""

Kind = type[BaseModel]


class Key(NamedTuple):
    """A key of a scenario.

    Two components of a table that say the same of a key have it in common. A section that stands in
    several places, such as a law of random numbers, is one.
    """

    owner: str
    name: str
    description: str | None


def yaml_blocks(page: Path) -> list[str]:
    """Return the YAML blocks of a page that are scenarios, or parts of one."""
    found = BLOCK.findall(page.read_text())
    return [text for kind, text in found if kind == "yaml" and "apiVersion:" not in text]


def python_blocks(page: Path) -> list[str]:
    """Return the programs of a page or notebook."""
    text = page.read_text()
    blocks = [text for kind, text in BLOCK.findall(text) if kind == "python"]
    cells = [re.sub(r"^[%:].*$", "", cell, flags=re.MULTILINE) for cell in CELL.findall(text)]
    return [*blocks, *cells]


WITH_BLOCKS = [page for page in PAGES if page.stem not in NEED_MODULES and yaml_blocks(page)]


def read_commands(page: Path) -> Iterator[dict[str, Any]]:
    """Yield what each command of a page sets."""
    for kind, text in BLOCK.findall(page.read_text()):
        for line in text.replace("\\\n", " ").splitlines() if kind == "sh" else ():
            words = shlex.split(line, comments=True)
            given = [b for a, b in itertools.pairwise(words) if a == "--set"]
            tree: dict[str, Any] = {}
            for key, _, value in (one.partition("=") for one in given):
                tree = set_value(tree, split(key), parse(value).data if value else None)
            yield tree


def read_program(text: str) -> Iterator[dict[str, Any]]:
    """Yield the dictionaries of a program whose keys are those of a scenario, dotted or not."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            found = read_literal(node)
            if {key.partition(".")[0] for key in found} <= set(Scenario.model_fields):
                tree: dict[str, Any] = {}
                for key, value in found.items():
                    tree = set_value(tree, path_of(key), value)
                yield tree


def read_literal(node: ast.AST | None) -> Any:
    """Return what an expression says without being run; None for what must be computed."""
    if isinstance(node, ast.Dict):
        pairs = zip(map(read_literal, node.keys), map(read_literal, node.values), strict=True)
        return {key: value for key, value in pairs if isinstance(key, str)}
    if isinstance(node, ast.List | ast.Tuple):
        return [read_literal(one) for one in node.elts]
    return node.value if isinstance(node, ast.Constant) else None


def path_of(key: str) -> tuple[Any, ...]:
    """Return the path that an axis sets."""
    path = split(key)
    return path[:-1] if path[-1] == "name" and path[:-1] in CHOICES else path


def expand(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a scenario with each value of its axes, beside each choice of another axis."""
    rows: list[tuple[str, Mapping[str, Any]]] = [("", {})]
    for key, values in (tree.get("sweep") or {}).items():
        rows += [(key, value if key == "zip" else {key: value}) for value in values or ()]
    choices = [row for row in rows if not row[0] or any(path_of(key) in CHOICES for key in row[1])]
    for axis, choice in choices:
        for other, row in rows:
            if axis and axis == other:
                continue  # a point has one value of an axis
            out = dict(tree)
            for key, value in (*choice.items(), *row.items()):
                out = set_value(out, path_of(key), value)
            yield out


def inner_kinds(info: FieldInfo, value: Any) -> Iterable[Kind]:
    """Return the settings classes of the section that a field holds."""
    found = get_choice(info)
    if isinstance(found, Choice):
        kind = found.find_settings_class(value)
        return () if kind is None else (kind,)
    return (found.settings_class,) if isinstance(found, Section) else list_classes(info.annotation)


def owner_below(info: FieldInfo, kind: Kind, path: str) -> str:
    """Return the owner of the keys below a field."""
    one_place = get_choice(info) is not None or path in Scenario.model_fields
    return path if one_place else kind.__qualname__


def given_keys(tree: Any, kinds: Iterable[Kind], owner: str = "") -> Iterator[Key]:
    """Yield the keys that a scenario gives, of each class that the section may have."""
    if isinstance(tree, list):
        for one in tree:
            yield from given_keys(one, kinds, owner)
    elif isinstance(tree, Mapping):
        for kind in kinds:
            for name in tree.keys() & kind.model_fields.keys():
                info = kind.model_fields[name]
                yield Key(owner, name, get_description(kind.model_fields[name]))
                for inner in inner_kinds(info, tree[name]):
                    below = owner_below(info, inner, f"{owner}.{name}".strip("."))
                    yield from given_keys(tree[name], [inner], below)


def every_key(kind: Kind, owner: str = "") -> Iterator[Key]:
    """Yield every key that a scenario may have; what chooses a component by its name is none."""
    for name, info in kind.model_fields.items():
        found = get_choice(info)
        if name != "name" and not isinstance(found, Choice):
            yield Key(owner, name, get_description(kind.model_fields[name]))
        every = (
            found.load_all_settings_classes().values()
            if isinstance(found, Choice)
            else inner_kinds(info, None)
        )
        for inner in every:
            yield from every_key(inner, owner_below(info, inner, f"{owner}.{name}".strip(".")))


def examples() -> Iterator[Mapping[str, Any]]:
    """Yield every scenario, or part of one, that a user can read."""
    for file in SCENARIO_FILES:
        yield parse(file.read_text()).data
    for page in PAGES:
        yield from (parse(text).data for text in yaml_blocks(page))
        yield from read_commands(page)
    for page in (*PAGES, *NOTEBOOKS):
        for text in python_blocks(page):
            yield from read_program(text)
    for file in SCRIPTS:
        yield from read_program(file.read_text())


def missing(root: Kind, trees: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys below a settings class that no example gives."""
    given = {key for tree in trees for one in expand(tree) for key in given_keys(one, [root])}
    return sorted({f"{key.owner}.{key.name}" for key in every_key(root) if key not in given})


@pytest.mark.slow
def test_every_key_has_an_example() -> None:
    """A key on this list needs a YAML block on the page where a user would look for it, or goes."""
    assert missing(Scenario, examples()) == []


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"receiver": {"name": "mrc", "threshold": 0.2}}, "power.threshold"),
        ({"model": {"name": "lstm", "hidden": 8}}, "model.hidden"),  # mlp's are widths of layers
        ({"csi": {"name": "pilots", "bits": 2}}, "csi.bits"),  # of phase_feedback
    ],
)
def test_a_key_of_that_name_elsewhere_is_no_example(tree: dict[str, Any], key: str) -> None:
    assert key in missing(Scenario, [tree])


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"csi": {"name": "phase_feedback", "bits": 2}}, "csi.bits"),
        ({"sweep": {"csi": ["perfect", {"name": "phase_feedback", "bits": 2}]}}, "csi.bits"),
        ({"sweep": {"csi.name": ["phase_feedback"], "csi.bits": [1, 2]}}, "csi.bits"),
        ({"sweep": {"zip": [{"csi": "phase_feedback", "csi.bits": 1}]}}, "csi.bits"),
        ({"channel": {"name": "rician", "ris": {"elements": 4}}}, "RisSettings.elements"),
    ],
)
def test_examples_in_every_form_count(tree: dict[str, Any], key: str) -> None:
    assert key in missing(Scenario, [])
    assert key not in missing(Scenario, [tree])


def test_programs_and_commands_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\notafl run a.yaml --set csi=pilots \\\n  --set csi.comb=2\n```\n")
    assert list(read_commands(page)) == [{"csi": {"name": "pilots", "comb": 2}}]
    program = "load({'csi': {'name': 'pilots', 'comb': n}, 'name': 'a'}); other({'a': 1})"
    assert {"csi": {"name": "pilots", "comb": None}, "name": "a"} in list(read_program(program))
    assert {"a": 1} not in list(read_program(program))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that blocks name, and no data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATA_DIR, str(tmp_path / "none"))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(SCENE, tmp_path / "high.nc")
    np.save(tmp_path / "decibel.npy", np.full((20, 10), -3.0))
    return tmp_path


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_blocks_load(page: Path, home: Path) -> None:
    """Each block is a scenario, or becomes one with a name."""
    for text in yaml_blocks(page):
        load_scenario({"name": "block"} | parse(text).data)


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
