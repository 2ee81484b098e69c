"""`otafl timeline` on a run, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command import call

import otafl

SMALL = """\
name: small
data: digits
model: {name: mlp, hidden: [4]}
devices: {count: 3, compute: {name: lognormal, median_flops_per_s: 1e7}, deadline_s: 0.0016}
training: {rounds: 4, eval_every: 2, batch_size: 4}
output: {save_timeline: true}
sweep: {channel.snr_db: [0, 10]}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("timeline")
    (home / "small.yaml").write_text(SMALL)
    call("run", home / "small.yaml", "--out", home / "small.nc", "--quiet")
    return home / "small.nc"


def test_the_command(ran: Path, capsys: pytest.CaptureFixture) -> None:
    call("timeline", ran, "--sel", "snr_db=10")
    told = capsys.readouterr().out
    assert told.startswith("small, trial: 0, normalised SNR: 10 dB: 3 devices, 0 to ")
    assert f"{ran.parent / 'small_timeline.png'}\n" in told
    assert (ran.parent / "small_timeline.png").stat().st_size > 10_000
    assert "updates of the whole trial: 12 started, " in told
    figure = ran.parent / "part.svg"
    call("timeline", ran, "--sel", "snr_db=0", "--from", 0.001, "--until", 0.002, "-o", figure)
    assert "3 devices, 0.001000 to 0.002000 s of " in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")
    for options, said in (
        ([], "pick one with --sel snr_db=0"),
        (["--sel", "snr_db=0", "--trial", 9], "trial 9: no such trial"),
        (["--sel", "snr_db=0", "-o", "/proc/no/a.png"], "/proc/no/a.png: cannot be written"),
    ):
        call("timeline", ran, *options, code=2)
        assert said in capsys.readouterr().err


def test_the_example_of_the_page_runs(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "timeline.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    one = otafl.open_results(ran).isel(snr_db=0, drop=True)
    (ran.parent / "results").mkdir()
    one.to_netcdf(ran.parent / "results" / "cell.nc", engine="h5netcdf")
    monkeypatch.chdir(ran.parent)
    exec(code, {})
    assert "device" in capsys.readouterr().out
