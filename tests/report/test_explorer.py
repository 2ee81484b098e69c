"""The part of a report that one explores: its numbers, its size, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from support.file_server import serve
from support.plot_bench import make_ramp, make_result

from otafl import cli
from otafl.report import explorer, render_page
from otafl.results.files import write_part

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2>"
AXES = ("snr_db", "device_count", "power")


def make_sweep() -> xr.Dataset:
    """A sweep over three axes, one of which has texts that try to be markup, with a lost trial."""
    rng = np.random.default_rng(5)
    shape = make_ramp(*AXES).shape
    values = {name: 0.1 + rng.random(shape) for name in ("test_accuracy", "aggregation_nmse")}
    values["sim_time_s"] = np.cumsum(rng.random(shape), -1)
    ds = make_result(values, AXES)
    ds["test_accuracy"][0, 0, 0, 1] = np.nan
    return ds.assign_coords(
        power=("power", ["=gbma", HOSTILE], {"long_name": HOSTILE, "units": ""})
    )


def read_numbers(row: list[float | None]) -> np.ndarray:
    return np.array(row, float)


@pytest.mark.exact
def test_numbers_are_the_moments_over_trials() -> None:
    ds = make_sweep()
    found = explorer.build_explorer(ds)
    assert found is not None
    assert [axis["name"] for axis in found["axes"]] == list(AXES)
    assert found["axes"][0]["numbers"] == [0, 10, 20]
    assert found["axes"][2]["numbers"] is None
    assert [one["name"] for one in found["variables"]] == [
        *("test_accuracy", "sim_time_s", "aggregation_nmse")
    ]
    for one in found["variables"]:
        trials = ds[one["name"]].transpose(*AXES, "round", "trial").values.reshape(12, 3, 2)
        finite = np.isfinite(trials).all(-1)
        for part, values in ((one["ends"], trials[:, -1]), (one["curves"], trials)):
            known = finite[:, -1] if values.ndim == 2 else finite
            mean, std = (read_numbers(part[key]).reshape(known.shape) for key in ("mean", "std"))
            assert mean[known] == pytest.approx(values.mean(-1)[known], rel=1e-5)
            assert std[known] == pytest.approx(values.std(-1, ddof=1)[known], rel=1e-5)
    accuracy, time, _ = found["variables"]
    assert accuracy["ends"]["count"] == [1] + 11 * [2]
    assert accuracy["ends"]["std"][0] is None
    assert time["ends"]["count"] == 2
    assert found["quantiles"] == {"2": pytest.approx(stats.t.ppf(0.975, 1))}
    assert found["left_out"] == []
    assert found["start"] == {
        "y": "test_accuracy",
        "x": "snr_db",
        "hue": "power",
        "panel": "device_count",
    }


def test_a_large_result_has_fewer_curves_and_says_so() -> None:
    one = make_sweep()
    ds = xr.concat([one] * 40, "seed").assign_coords(seed=range(40))
    ds = ds.assign_coords(final_round=one["final_round"].expand_dims(seed=40))
    found = explorer.build_explorer(ds, 480 * 7)
    assert found is not None
    accuracy, *others = found["variables"]
    assert len(accuracy["ends"]["mean"]) == 480
    assert len(accuracy["curves"]["mean"]) == 480 * 3
    assert [("curves" in one) for one in others] == [False, False]
    assert found["left_out"] == ["Variables without curves here: sim_time_s, aggregation_nmse."]


@pytest.mark.slow
def test_limited_memory_leaves_the_static_page(tmp_path: Path) -> None:
    """The JavaScript engine ends its process there."""
    ds = make_result({"test_accuracy": make_ramp("snr_db")}, ["snr_db"])
    write_part(ds, tmp_path / "r.nc")
    command = "ulimit -v 9437184; exec $0 -m otafl report r.nc"
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout == "r_report.html\n"
    steps = done.stderr.splitlines()
    assert steps[0] == "figure: Overview"
    assert "figures and tables only" in steps[-1]
    assert "<img" in (tmp_path / "r_report.html").read_text()


def test_without_the_extra_the_static_page_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(explorer, "PROGRAM", "import no_such_package")
    explorer.load_library.cache_clear()
    try:
        write_part(
            make_result({"test_accuracy": make_ramp("snr_db")}, ["snr_db"]), tmp_path / "r.nc"
        )
        with pytest.raises(SystemExit):
            cli.main(["report", str(tmp_path / "r.nc")])
    finally:
        explorer.load_library.cache_clear()
    assert capsys.readouterr().err.count("pip install 'otafl[report]'") == 1
    text = (tmp_path / "r_report.html").read_text()
    assert "<script" not in text
    assert "explorer" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "script-src" not in text


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--enable-logging=stderr --virtual-time-budget=30000"
)
WIDTH = 400
CHECK = """<!DOCTYPE html><title>check</title><body><script>
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
(async () => {
  const frame = document.createElement('iframe');
  frame.width = %d; frame.height = 900; frame.style.border = 0;
  frame.src = 'page.html';
  document.body.append(frame);
  await new Promise((done) => frame.onload = done);
  const page = frame.contentDocument, root = page.documentElement;
  const find = (id) => page.getElementById(id);
  const drawn = async (before) => {
    for (let i = 0; i < 400 && find('explorer').dataset.drawn === before; i++) await pause(25);
    return find('explorer').dataset.drawn;
  };
  const symbols = () => [...page.querySelectorAll('#chart svg .mark-symbol.role-mark path')];
  const table = () => [...page.querySelectorAll('#shown-body tr')].map(
    (row) => [...row.cells].map((cell) => cell.textContent));
  const titles = () => [...page.querySelectorAll('#shown-head th')].map((one) => one.textContent);
  const options = (id) => [...find(id).options].map((one) => one.value);
  const choose = async (element, value) => {
    const before = find('explorer').dataset.drawn;
    if (element.type === 'checkbox') element.checked = value; else element.value = value;
    element.dispatchEvent(new frame.contentWindow.Event('change', { bubbles: true }));
    await drawn(before);
  };
  const seen = { shown: false };
  await drawn(undefined);
  seen.shown = !find('explorer').hidden;
  seen.start = { symbols: symbols().length, table: table(), titles: titles(),
    panels: options('pick-panel'), across: options('pick-x') };
  const dot = symbols()[0], box = dot.getBoundingClientRect();
  for (const kind of ['pointerover', 'pointermove']) {
    dot.dispatchEvent(new frame.contentWindow.PointerEvent(kind, { bubbles: true,
      clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 }));
  }
  for (let i = 0; i < 40 && !find('vg-tooltip-element'); i++) await pause(25);
  seen.tip = find('vg-tooltip-element').textContent;
  await choose(find('pick-panel'), '');
  const slice = page.querySelector('#slices select[data-axis=device_count]');
  await choose(slice, '1');
  seen.slice = { hidden: slice.closest('label').hidden, table: table() };
  await choose(find('pick-spread'), 'confidence');
  seen.confidence = table();
  await choose(find('pick-x'), 'round');
  seen.rounds = { symbols: symbols().length, rows: table().length };
  await choose(find('pick-x'), 'along:sim_time_s');
  seen.along = { rows: table().length, titles: titles() };
  await choose(find('pick-y'), 'aggregation_nmse');
  await choose(find('log-y'), true);
  await choose(find('pick-x'), 'axis:power');
  seen.choices = { hue: options('pick-hue'), symbols: symbols().length, titles: titles() };
  seen.loaded = [...page.images].every((image) => image.complete && image.naturalWidth > 0);
  seen.hit = frame.contentWindow.hit || 0;
  seen.width = root.scrollWidth; seen.fits = frame.contentWindow.innerWidth;
  seen.fetched = frame.contentWindow.performance.getEntriesByType('resource').map((e) => e.name)
    .filter((name) => !name.startsWith('data:'));
  document.body.innerHTML = '<pre>' + encodeURIComponent(JSON.stringify(seen)) + '</pre>';
})().catch((error) => {
  document.body.innerHTML = '<pre>' + encodeURIComponent(String(error.stack)) + '</pre>';
});
</script>"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A folder that this machine serves to itself."""
    with serve(tmp_path) as address:
        yield address, tmp_path


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")
def test_in_a_browser(served: tuple[str, Path]) -> None:
    """Choose, hover and download, with names that try to be markup, and nothing from a network."""
    pytest.importorskip("vl_convert")
    address, folder = served
    ds = make_sweep()
    (folder / "page.html").write_text(render_page(ds, "r.nc"))
    (folder / "check.html").write_text(CHECK % WIDTH)
    command = [str(BROWSER), *FLAGS.split(), f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, "--dump-dom", f"{address}/check.html"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    found = re.search(r"<pre>(.*)</pre>", done.stdout)
    assert found is not None, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(unquote(found[1]))
    assert seen["shown"]
    assert seen["start"]["symbols"] == len(seen["start"]["table"]) == 12
    assert seen["start"]["titles"][:3] == [
        "devices in the population",
        HOSTILE,
        "normalised SNR [dB]",
    ]
    assert seen["start"]["panels"] == ["", "device_count"]
    assert seen["start"]["across"][-2:] == ["along:sim_time_s", "along:aggregation_nmse"]
    assert "test accuracy of the global model" in seen["tip"]
    assert "trials" in seen["tip"]
    ends = ds["test_accuracy"].isel(round=-1, device_count=1)
    assert not seen["slice"]["hidden"]
    first = [float(cell) for cell in seen["slice"]["table"][0][1:]]
    trials = ends.isel(snr_db=0, power=0).values
    std = trials.std(ddof=1)
    assert first == pytest.approx(
        [0, trials.mean(), trials.mean() - std, trials.mean() + std, std, 2], rel=1e-4
    )
    half = stats.t.ppf(0.975, 1) * std / np.sqrt(2)
    low, high = (float(cell) for cell in seen["confidence"][0][3:5])
    assert (low, high) == pytest.approx((trials.mean() - half, trials.mean() + half), rel=1e-3)
    assert seen["rounds"] == {"symbols": 6, "rows": 6}
    assert seen["along"]["rows"] == 6
    assert seen["choices"]["hue"] == ["", "snr_db", "device_count"]
    assert seen["choices"]["symbols"] == 2
    assert seen["hit"] == 0
    assert seen["fetched"] == []
    assert seen["loaded"]
    assert seen["width"] <= seen["fits"] == WIDTH
    assert "CONSOLE" not in done.stderr, done.stderr[-3000:]
