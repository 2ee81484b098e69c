"""The documentation: links lead somewhere, examples run as they stand, and the pages made from
registry, schema and docstrings have everything."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import otafl
from otafl import cli
from otafl.core import registry
from otafl.core.registry import TABLES
from otafl.results.variables import VARIABLES
from otafl.scenario import Scenario, load_scenario, writing
from otafl.scenario.keys import iterate_fields

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from otafl_docs import pages, rst, settings  # noqa: E402

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[a-z]+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = (".", ".github", "results", "benchmarks")
WRITTEN = sorted(DOCS.glob("*.md"))
INSTALL = "python3 -m venv"


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return dict(pages.generated())


def anchors(text: str) -> set[str]:
    """Of a page's headings, as MyST and code hosts make them."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def test_links() -> None:
    """Every relative link of a page leads to a file, and to a heading of it."""
    pages_with_links = [
        *WRITTEN,
        *(ROOT / "studies").rglob("README.md"),
        *(
            page
            for name in (".", ".github", "results", "benchmarks")
            for page in (ROOT / name).glob("*.md")
        ),
    ]
    assert len(pages_with_links) > 80
    faults = []
    for page in pages_with_links:
        for target in LINK.findall(page.read_text()):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if re.match(r"\w+:", target):
                continue
            if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
                faults.append(f"{page.relative_to(ROOT)}: {target}")
    assert faults == []


def run_blocks(page: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, object]:
    """Run a page's blocks one after the other in a folder.

    Files are written, commands called, and Python runs in one namespace, which is returned. The
    words of a block of output are among those that the block before it printed.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    names: dict[str, object] = {}
    printed = ""
    for language, text in BLOCK.findall(page.read_text()):
        if language == "yaml":
            (folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif language == "sh":
            printed = "".join(map(call, text.splitlines()))
        elif language == "text":
            assert set(WORD.findall(text)) <= set(WORD.findall(printed)), text
        elif language == "python":
            with redirect_stdout(StringIO()) as caught:
                exec(compile(text, page.name, "exec"), names)
            printed = caught.getvalue()
            print(printed, end="")
        else:
            assert language == "math"
    return names


def call(line: str) -> str:
    """Run a command, and return what it prints."""
    if line.startswith(INSTALL):
        assert line in (ROOT / "README.md").read_text().splitlines()
        return ""
    name, *arguments = shlex.split(line, comments=True)
    assert name == "otafl"
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert not left.value.code, line
    return printed.getvalue()


@pytest.mark.slow
def test_get_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_blocks(DOCS / "get_started.md", monkeypatch, tmp_path)
    table = names["table"]
    assert dict(table.sizes) == {"snr_db": 4, "power": 3, "trial": 3}
    assert float(table.mean()) > 0.3  # of ten classes
    for file in ("curves.png", "by_snr.png", "results/first.nc", "results/louder.nc"):
        assert (tmp_path / file).stat().st_size > 1000
    said = names["result"].test_accuracy.isel(round=-1).mean()
    louder = otafl.open_results(tmp_path / "results" / "louder.nc")
    assert "snr_db: 10" in louder.attrs["scenario"]
    assert float(said) > 0.5


def test_concepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The formula of the page is what its example measures."""
    names = run_blocks(DOCS / "concepts.md", monkeypatch, tmp_path)
    assert names["measured"] == pytest.approx(names["predicted"], rel=0.1)
    assert "squared error predicted" in capsys.readouterr().out


def test_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_blocks(DOCS / "results.md", monkeypatch, tmp_path)
    assert names["again"] == load_scenario(dict(names["again"].model_dump(exclude_unset=True)))
    text = (DOCS / "results.md").read_text()
    for name in re.findall(r"`(\w+_(?:accuracy|symbols|s|j|round|nmse))`", text):
        assert name in VARIABLES


@pytest.mark.slow
def test_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_blocks(DOCS / "paper.md", monkeypatch, tmp_path)
    assert dict(names["tests"].sizes) == {"power": 1, "snr_db": 3}
    tex = (tmp_path / "accuracy.tex").read_text()
    assert r"\begin{tabular}{lrrr}" in tex
    assert "n = 6 trials" in tex
    for file in ("cost.md", "all.csv", "tests.tex", "snr.pdf", "policies.html"):
        assert (tmp_path / file).stat().st_size > 300


def test_the_scenario_of_each_entry_is_valid_and_uses_it(tmp_path: Path) -> None:
    file, faults = tmp_path / "scenario.yaml", []
    for table in TABLES:
        for name in registry.list_names(table):
            file.write_text(writing.format_example(table, name))
            try:
                used = attrgetter(TABLES[table].section)(load_scenario(file)).name
            except otafl.UserError as error:
                used = str(error)
            if used != name:
                faults.append(f"{table} {name}: {used}")
    assert faults == []


def test_entries_have_pages(generated: dict[str, str]) -> None:
    """A page or section for each, with summary, source, settings and scenario."""
    for table in TABLES:
        for name in registry.list_names(table):
            about = registry.read_info(table, name)
            path, anchor = pages.entries.place(table, name)
            _, found, text = generated[f"{path}.rst"].partition(f".. _{anchor}:\n")
            assert found, name
            text = re.split(r"\n\.\. _entry-", text)[0]
            assert rst.escaped(about.summary) in text
            assert all(rst.escaped(one) in text for one in about.references)
            example = rst.indented(writing.format_example(table, name).rstrip(), 3)
            assert example in text
            for key in registry.load_settings_class(table, name).model_fields:
                if key != "name":
                    assert f".. _{settings.label(f'{table}-{name}', key)}:" in text


def test_keys_have_places(generated: dict[str, str]) -> None:
    """Every dotted key that a scenario can have is in the reference."""
    everything = "\n".join(text for path, text in generated.items() if path.endswith(".rst"))
    labels = set(re.findall(r"\.\. _(key-[\w-]+):", everything))
    keys = {key for key, _ in iterate_fields(Scenario) if not key.endswith(".name")}
    assert len(keys) > 300
    for key in keys:
        section, _, rest = key.rpartition(".")
        plain = settings.label(section, rest)
        ends = f"-{rest}".replace("_", "-")
        assert plain in labels or any(label.endswith(ends) for label in labels), key
    stackable = generated["sweep.rst"]
    assert "``channel.snr_db``" in stackable
    assert "``training.rounds``" not in stackable


@pytest.mark.slow
def test_pictures(tmp_path: Path) -> None:
    """The committed pictures are those that the script draws and the page shows, and are small."""
    runpy.run_path(str(ROOT / "scripts" / "draw_concepts.py"))["draw_all"](tmp_path)
    committed = {file.name: file for file in (DOCS / "pictures").glob("*.svg")}
    assert set(committed) == {file.name for file in tmp_path.iterdir()}
    shown = set(re.findall(r"\(pictures/(\S+)\)", (DOCS / "concepts.md").read_text()))
    assert shown == set(committed)
    for name, file in committed.items():
        assert file.stat().st_size < 100_000
        size = ElementTree.parse(file).getroot().get("viewBox")
        assert size == ElementTree.parse(tmp_path / name).getroot().get("viewBox")
