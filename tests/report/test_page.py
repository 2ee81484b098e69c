"""The page of `otafl report`: what it says, that it is self-contained, how a browser shows it."""

from __future__ import annotations

import base64
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.plot_bench import make_ramp, make_result

import otafl
from otafl import cli
from otafl.analysis.paired import compare_pairs
from otafl.analysis.summary import format_number
from otafl.report import render_page
from otafl.results.files import write_part
from otafl.scenario import compute_scenario_hash, load_scenario

pytestmark = pytest.mark.slow

PERSONAL = """\
name: personal
data: {name: digits, test: per_device, train_samples: 300}
model: {name: mlp, hidden: [4]}
devices: {count: 3}
training: {rounds: 2, eval_every: 1, batch_size: 4}
trials: 2
seed: 3
sweep:
  zip:
    - {algorithm: {name: ditto, personal_learning_rate: 0.05}, power: ci}
    - {algorithm: pfedme, power: {name: tci, threshold: 0.3}}
  devices.count: [2, 4]
"""
HOSTILE = "<script>alert(1)</script>&<img src=x onerror=alert(2)>"
VOID = {"meta", "img", "br", "wbr", "link", "input", "hr"}


class Page(HTMLParser):
    """Tags in order with their attributes, text by the innermost tag, and unclosed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            self.texts[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A personalised sweep over a joint axis and over the number of devices."""
    home = tmp_path_factory.mktemp("report")
    (home / "personal.yaml").write_text(PERSONAL)
    write_part(otafl.run(load_scenario(home / "personal.yaml")), home / "personal.nc")
    return home / "personal.nc"


def drop_scripts(text: str) -> str:
    """The page without what follows its last section."""
    return re.sub(
        r"</main>\n<script.*</script>\n</body>", "</main>\n</body>", text, flags=re.DOTALL
    )


def call(*args: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    assert (left.value.code or 0) == code


@pytest.fixture(scope="module")
def written(swept: Path) -> Path:
    """The page of that sweep, written by the command."""
    call("report", swept)
    return swept.parent / "personal_report.html"


def hostile() -> xr.Dataset:
    """An unfinished sweep with a diverged trial, whose texts try to be markup."""
    ds = make_result({"test_accuracy": make_ramp("power") + 0.1}, ["power"], title=HOSTILE)
    ds["test_accuracy"][1] = np.nan
    ds["final_round"][1] = np.nan
    ds["diverged_round"][0, 1] = 5
    ds["test_accuracy"][0, 1, 1:] = np.nan
    ds["test_accuracy"].attrs["long_name"] = HOSTILE
    ds = ds.assign_coords(power=("power", ["gbma", HOSTILE], ds["power"].attrs))
    sweep = json.loads(ds.attrs["sweep"])
    sweep[0]["coords"]["power"]["values"][1] = HOSTILE
    ds.attrs |= {"sweep": json.dumps(sweep), "complete": 0, "device_name": HOSTILE}
    return ds


def test_chosen_slices_and_paired_tests(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Of what is picked alone; a row a comparison with the first choice, at every other value."""
    rng = np.random.default_rng(0)
    values = make_ramp("snr_db", "power", tail=(4, 3)) + 0.1 * rng.normal(size=(3, 2, 4, 3))
    ds = make_result({"test_accuracy": values}, ["snr_db", "power"], trials=4)
    write_part(ds, tmp_path / "r.nc")
    call("report", tmp_path / "r.nc", "--sel", "snr_db=10", "--sel", "snr_db=20")
    text = (tmp_path / "r_report.html").read_text()
    assert "Only these values are shown: normalised SNR: 10 dB, 20." in text
    first = re.search(r'id="table-1".*?</table>', text, re.DOTALL)
    assert first is not None
    assert len(re.findall("<tr>", first[0])) == 1 + 4
    tests = re.search(r'id="test-1".*?</table>', text, re.DOTALL)
    assert tests is not None
    assert "from power policy gbma" in text
    assert "corrected by Holm over 2 comparisons" in text
    rows = [Page(row).texts for row in re.findall(r"<tr>.*?</tr>", tests[0], re.DOTALL)]
    found = compare_pairs(ds.sel(snr_db=[10, 20]), "test_accuracy", "power", "gbma").isel(power=0)
    assert [row["td"][0] for row in rows[1:]] == [
        format_number(float(one), 3) for one in found["difference"]
    ]
    assert [row["td"][2] for row in rows[1:]] == [
        format_number(float(one), 3) for one in found["p_holm"]
    ]
    call("report", tmp_path / "r.nc", "--sel", "snr_db=3", code=2)
    assert "snr_db has 0, 10, 20" in capsys.readouterr().err
    few = render_page(ds.isel(trial=[0, 1]), "r.nc")
    assert "Paired tests" not in few
    assert "Only these values" not in few


def test_settings_run_the_same_scenario_again(swept: Path, written: Path, tmp_path: Path) -> None:
    parsed = Page(written.read_text())
    command, settings = parsed.texts["pre"]
    assert command == f"otafl run personal.yaml --out {swept}"
    (tmp_path / "again.yaml").write_text(settings)
    again = compute_scenario_hash(load_scenario(tmp_path / "again.yaml"))
    assert again == otafl.open_results(swept).attrs["scenario_hash"]
    cells = parsed.texts["td"]
    assert again in cells
    assert otafl.__version__ in cells


def test_figures_are_embedded_and_told_in_words(written: Path) -> None:
    parsed = Page(written.read_text())
    titles = [text.strip() for text in parsed.texts["h3"]]
    assert {
        *("Overview", "Accuracy against simulated seconds", "Accuracy against joules"),
        *("Accuracy against symbols", "Distribution over devices", "Accuracy and cost"),
    } <= set(titles)
    images = parsed.all("img")
    assert len(images) == len(parsed.all("figure")) == len(parsed.texts["figcaption"])
    for image in images:
        kind, _, data = str(image["src"]).partition(";base64,")
        assert kind == "data:image/png"
        assert base64.b64decode(data).startswith(b"\x89PNG")
    alts = " ".join(str(image["alt"]) for image in images)
    assert "Accuracy and cost: " in alts


def test_the_page_needs_nothing_from_elsewhere(written: Path) -> None:
    """The scripts of the part to explore, where it is there, are those of `test_explorer`."""
    text = drop_scripts(written.read_text())
    parsed = Page(text)
    (policy,) = [m["content"] for m in parsed.all("meta") if "Policy" in str(m.get("http-equiv"))]
    assert str(policy).startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "iframe", "object"}
    for _, attrs in parsed.tags:
        for name in ("src", "href", "srcset", "action"):
            assert str(attrs.get(name, "#")).startswith(("#", "data:image/"))
    assert "url(" not in re.sub(r"base64,[^\"]*", "", text)
    anchors = {str(a["href"])[1:] for a in parsed.all("a")}
    assert anchors <= {str(attrs.get("id")) for _, attrs in parsed.tags}


def test_texts_are_escaped_and_what_is_missing_is_told() -> None:
    text = drop_scripts(render_page(hostile(), "folder"))
    parsed = Page(text)
    assert not parsed.all("script")
    assert all("onerror" not in image for image in parsed.all("img"))
    assert parsed.texts["h1"] == [HOSTILE]
    assert html.escape(HOSTILE, quote=False) in text.replace("<wbr>", "")
    notices = [notice.strip() for notice in parsed.texts["li"][:2]]
    assert notices[0].startswith("Unfinished: 1 of 2 points are there")
    assert notices[1] == (
        "1 of 4 trials diverged in round 5: metrics count as the untrained model's, all else is "
        "left out."
    )
    assert parsed.texts["pre"][0].startswith("otafl sweep '<script>")


def test_wrong_names_are_refused(swept: Path, capsys: pytest.CaptureFixture) -> None:
    call("report", swept, "--out", "page.pdf", code=2)
    assert "must be the name of a file that ends in .html" in capsys.readouterr().err
    call("report", swept.parent / "none.nc", code=2)
    assert "no such file" in capsys.readouterr().err
