"""The documentation: links lead somewhere, code blocks run as they stand, and the numbers of tables
are those that they compute."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from operator import attrgetter
from pathlib import Path

import pytest
import torch
from support.marks import IN_CHECKOUT
from support.pages import BLOCK, DOCS

import otafl
from otafl import cli
from otafl.core import registry
from otafl.core.registry import TABLES
from otafl.scenario import load_scenario, writing

ROOT = Path(__file__).parents[2]

README = ROOT / "README.md"


WORD = re.compile(r"\b[a-z]+\b")

LINK = re.compile(r"\]\(([^)\s]+)\)")

INSTALL = "python3 -m venv"


def anchors(text: str) -> set[str]:
    """Of a page's headings, as MyST and code hosts make them."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@IN_CHECKOUT
def test_links() -> None:
    """Every relative link of a page leads to a file, and to a heading of it."""
    pages_with_links = [*DOCS.glob("*.md"), *(ROOT / "studies").rglob("README.md")]
    for folder in (".", ".github", "results", "benchmarks"):
        pages_with_links += (ROOT / folder).glob("*.md")
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
        elif language == "python" and "flwr" in text and find_spec("flwr") is None:
            continue  # the tests of extras run it
        elif language == "python" and text.startswith("# "):
            (folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)
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
        assert line in README.read_text().splitlines()
        return ""
    if line.startswith("python -m studies."):
        assert find_spec(line.split()[2]) is not None
        return ""
    name, *arguments = shlex.split(line, comments=True)
    assert name == "otafl"
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert not left.value.code, line
    return printed.getvalue()


def read_row(page: str, name: str) -> list[float]:
    """The numbers of a table's row."""
    (row,) = re.findall(rf"^\| `?{re.escape(name)}`? \|(.*)\|$", (DOCS / page).read_text(), re.M)
    return [float(cell) for cell in row.split("|")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "files"),
    [
        ("get_started.md", "curves.png by_snr.png results/first.nc results/louder.nc"),
        ("paper.md", "cost.md all.csv tests.tex snr.pdf policies.html policies.zip"),
        ("places.md", "results/town.nc town_map.png"),
        ("results.md", ""),
        ("differentiable.md", ""),
    ],
)
def test_blocks_run(page: str, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leave the files that the page tells of."""
    torch.manual_seed(0)
    run_blocks(DOCS / page, monkeypatch, tmp_path)
    assert all((tmp_path / file).stat().st_size > 300 for file in files.split())


def test_concepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The formula of the page is what its example measures."""
    names = run_blocks(DOCS / "concepts.md", monkeypatch, tmp_path)
    assert names["measured"] == pytest.approx(names["predicted"], rel=0.1)
    assert "squared error predicted" in capsys.readouterr().out


@pytest.mark.slow
def test_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's numbers, but for what another processor and torch's start change."""
    torch.manual_seed(0)
    monkeypatch.syspath_prepend(tmp_path)
    names = run_blocks(DOCS / "cost.md", monkeypatch, tmp_path)
    total = names["total"]
    loop = [total.symbols, total.airtime_s, total.energy_j.sum(), names["computed_j"]]
    rows = {"PyTorch loop": loop}
    result = otafl.open_results(tmp_path / "results" / "mine.nc").isel(trial=0, round=-1)
    for name, transport in (("over the air", "over_the_air"), ("digital packets", "digital")):
        one = result.sel(transport=transport)
        joules = [float(one[key].sum()) for key in ("tx_energy_j", "compute_energy_j")]
        rows[f"method, {name}"] = [float(one.uplink_symbols), float(one.airtime_s), *joules]
    for name, row in rows.items():
        assert row == pytest.approx(read_row("cost.md", name), rel=0.03), name


@pytest.mark.slow
def test_waveform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table's numbers, but for what another processor rounds."""
    names = run_blocks(DOCS / "waveform.md", monkeypatch, tmp_path)
    for case, found in names["errors"].items():
        assert found == pytest.approx(read_row("waveform.md", case)[0], abs=2e-4)


@pytest.mark.slow
def test_interference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's numbers, but for what another processor rounds."""
    names = run_blocks(DOCS / "interference.md", monkeypatch, tmp_path)
    for server, row in zip(("average", "adagrad", "adam"), names["median"].values, strict=True):
        assert row == pytest.approx(read_row("interference.md", server), abs=0.02)


def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scenario is valid, its example runs, and there are two commands for a fresh machine."""
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    short = ["training.rounds=2", "training.eval_every=1", "trials=1"]
    scenario = load_scenario(ROOT / "scenarios" / "quickstart.yaml", short)
    otafl.run(scenario, out=tmp_path / "results" / "quickstart.nc")
    for language, block in BLOCK.findall(text):
        if language == "python":
            exec(compile(block, "README.md", "exec"), {})
        elif language == "yaml":
            (tmp_path / "readme.yaml").write_text(block)
            assert load_scenario(tmp_path / "readme.yaml").algorithm.name == "fedrlr_plus"
    first, second = (line for line in text.splitlines() if line.startswith(INSTALL))
    assert first.endswith("otafl run scenarios/quickstart.yaml")
    assert second.endswith("-m pytest")


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
