"""`otafl validate`: all laws hold, what is printed and written, exit codes, and that laws can fail.

The mutations of the code that must make a law fail are in MUTATIONS, and are tried here.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.mutations import QUICK, Patch, constant, failing, scaled

from otafl import cli
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.laws import checks, codecs, report, sheet, suite
from otafl.laws.bench import Bench

DOCS = Path(__file__).parents[2] / "docs" / "validation.md"


def call(*args: object, code: int = 0) -> None:
    """The command in this process; it must end with the exit code."""
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    assert (left.value.code or 0) == code


@pytest.fixture(scope="module")
def outcomes() -> list[suite.Outcome]:
    return suite.run(QUICK, suite.laws())


@pytest.mark.slow
def test_all_laws_hold(outcomes: list[suite.Outcome]) -> None:
    failed = [row for row in report.rows(outcomes) if not row["pass"]]
    assert failed == []
    assert sum(len(outcome.checks) for outcome in outcomes) <= checks.MOST_CHECKS
    names = [outcome.law.name for outcome in outcomes]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_what_is_registered_is_checked(outcomes: list[suite.Outcome]) -> None:
    names = {outcome.law.name for outcome in outcomes}
    for policy in registry.names("power"):
        for law in ("error given the channel", "power within its budget"):
            assert f"power {policy}: {law}" in names
        given = f"power {policy}: scalars as on the formula sheet" in names
        # whose multipliers, plans or energy left only they know: laws of their own
        assert given or policy in ("cao_average", "budget_paced", "lyapunov", "pre_scaler")
    for channel in registry.names("channel"):
        assert f"channel {channel}: mean power" in names or channel == "trace"


@pytest.mark.slow
def test_three_levels_and_counts(outcomes: list[suite.Outcome]) -> None:
    law = next(o for o in outcomes if o.law.name == "power gbma: error given the channel")
    assert [check.case for check in law.checks] == [
        f"K={k}, {snr} dB" for k in (3, 10, 30) for snr in (0, 10, 20)
    ]


@pytest.mark.slow
def test_docs_name_every_law(outcomes: list[suite.Outcome]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    written = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    anyone = {"power": "policy", "channel": "channel"}
    found = set()
    for outcome in outcomes:
        subject, _, law = outcome.law.name.partition(": ")
        family = subject.split(" ")[0]
        names = {outcome.law.name, f"{family} <{anyone.get(family)}>: {law}"}
        assert names & written, outcome.law.name
        found |= names
    assert written <= found
    assert "at most 1e-3" in text
    assert checks.SUITE_LEVEL == 1e-3
    assert f"at most {checks.MOST_CHECKS} checks, 5e-7 each" in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = ("--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv")
    call("validate", "--quick", "--only", "gbma", "--quiet", *files)
    captured = capsys.readouterr()
    assert captured.err == ""
    chosen = suite.laws("gbma")
    assert 5 < len(chosen) < 20
    assert captured.out.count("pass") == len(chosen) + 1  # and the heading
    assert f"{len(chosen)} laws hold" in captured.out
    rows = json.loads((tmp_path / "a.json").read_text())
    assert {row["law"] for row in rows} == {law.name for law in chosen}
    assert all((row["pass"] and row["low"] is not None) or "budget" in row["law"] for row in rows)
    with (tmp_path / "a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == report.COLUMNS
    assert [float(line["measured"]) for line in lines] == [row["measured"] for row in rows]


def test_unknown_laws_and_places(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    call("validate", "--only", "nonsense", code=2)
    assert "channel, surface, csi, power" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    call("validate", "--json", tmp_path / "file" / "a.json", code=2)
    with pytest.raises(UserError, match="nonsense"):
        suite.laws("nonsense")


def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Exit code 1, every failing case in the table; a law that cannot be run is one."""

    def wrong(bench: Bench) -> list[checks.Check]:
        cases = [checks.exactly(1.0, 2.0, case="first"), checks.exactly(1.0, 3.0, case="second")]
        return [*cases, checks.exactly(1.0, 1.0)]

    def broken(bench: Bench) -> list[checks.Check]:
        raise ValueError("no such thing")

    laws = [checks.Law("a wrong law", "nowhere", wrong), checks.Law("a broken law", "", broken)]
    monkeypatch.setattr(suite, "laws", lambda only: laws)
    call("validate", "--quiet", code=1)
    out = capsys.readouterr().out
    assert out.count("FAIL") == 3
    assert "2 of 2 laws failed" in out
    assert "no such thing" in out


# ---------------------------------------------------------------- intervals


def test_intervals_by_hand() -> None:
    check = checks.exactly(2.0, 2.1, 0.1)
    assert (check.low, check.high) == (1.8, 2.2)
    assert check.strain == pytest.approx(0.5)
    assert check.passed
    assert not checks.exactly(2.0, math.nan).passed
    assert checks.exactly(2.0, math.nan).strain == math.inf
    assert not checks.at_most(1.0, 1.1).passed
    assert checks.at_most(1.0, 0.1).strain == 0
    assert not checks.at_least(1.0, 0.9).passed
    assert checks.normal(0.0, 5.02, 1.0).passed
    assert not checks.normal(0.0, 5.03, 1.0).passed
    ratios = checks.ratios(np.array([1.0, 0.5, 1.2]), np.ones(3))
    assert (ratios.measured, ratios.passed) == (0.5, False)


def test_intervals_hold_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a level of 5 %, 2,000 samples of 50 numbers each: between 3 % and 7 % are outside, six
    standard deviations, for every kind of interval."""
    monkeypatch.setattr(checks, "LEVEL", 0.05)
    rng = np.random.default_rng(0)
    z = rng.standard_normal((2000, 50))
    u = rng.uniform(size=(2000, 500))
    tried: dict[str, Callable[[int], checks.Check]] = {
        "mean": lambda i: checks.mean(0.0, z[i]),
        "mean_square": lambda i: checks.mean_square(3.0, z[i] ** 2, 50),
        "law_of": lambda i: checks.law_of(u[i], stats.uniform.cdf),
        "share": lambda i: checks.share(0.5, int((u[i] < 0.5).sum()), 500),
    }
    for name, one in tried.items():
        outside = sum(not one(i).passed for i in range(2000)) / 2000
        assert 0.03 < outside < 0.07, name


def test_sheet_by_hand() -> None:
    """Two devices of q = 1 and 9 with m = 1, N = 1/2: the first capped, sqrt(eta) = min(1.5 / 1,
    10.5 / 4) = 1.5, error ((1/1.5 - 1)^2 + 0.5/2.25) / 4 = 1/12; full power's is 10.5 / 4."""
    one = np.ones((1, 2))
    states = sheet.States(np.array([[1.0, 3.0j]]), one, one, one, np.array([0.5]), 1, None)
    best = sheet.cao_static(states)
    assert best.eta[0] == pytest.approx(2.25, rel=1e-6)
    assert sheet.error(best, one, states.noise)[0] == pytest.approx(1 / 12, rel=1e-9)
    assert sheet.full(states).eta[0] == pytest.approx((10.5 / 4) ** 2)
    assert sheet.ci(states).eta[0] == pytest.approx(1.0)


# ---------------------------------------------------------------- laws can fail


def cao_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One device too many at full power: a known public mistake."""
    from otafl.power import cao_static

    def threshold(reach: Any, power: Any, noise: Any, there: Any) -> Any:
        order = reach.argsort(-1)
        q, m = reach.gather(-1, order), power.gather(-1, order)
        root = (noise + (m * q**2).cumsum(-1)) / (m * q).cumsum(-1)
        place = (root.argmin(-1, keepdim=True) + 1).clamp_max(root.shape[-1] - 1)
        return root.gather(-1, place)

    monkeypatch.setattr(cao_static, "threshold", threshold)


def noise_of_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """One noise a device where there is one receiver."""
    from otafl.uplink.impairments.impairments import Impairments

    real = Impairments.noise
    monkeypatch.setattr(Impairments, "noise", lambda *args: 5.0 * real(*args))


def blind_of_half_the_antennas(monkeypatch: pytest.MonkeyPatch) -> None:
    from otafl.power.blind import Blind

    real = Blind.coefficients

    def coefficients(self: Blind, state: Any, link: Any) -> Any:
        return real(self, state, dataclasses.replace(link, antennas=link.antennas / 2))

    monkeypatch.setattr(Blind, "coefficients", coefficients)


def reported_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from otafl.uplink.delivery import Tally

    real = Tally.error
    monkeypatch.setattr(Tally, "error", lambda self, e, target: real(self, 1.1 * e, target))


def no_onsager(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(y: Any, x: Any, z: Any, matrix: Any, a: float) -> Any:
        tau = z.square().mean(-1, keepdim=True).sqrt()
        r = x + z @ matrix
        x = r - r.clamp(-a * tau, a * tau)
        return x, y - x @ matrix.mT

    monkeypatch.setattr(codecs, "amp_step", step)


def everyone_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    from otafl.codecs import topk

    real = topk.forgotten
    monkeypatch.setattr(
        topk, "forgotten", lambda sent, heard, *more: real(sent, torch.ones_like(heard), *more)
    )


def nearest_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """QSGD that rounds down: biased."""
    from otafl.codecs.qsgd import Qsgd

    real = Qsgd._quantised
    monkeypatch.setattr(Qsgd, "_quantised", lambda self, b, draw: real(self, b, 0.0 * draw))


def global_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise from torch's global generator."""
    from otafl.core.rng import Streams

    def normal(self: Any, purpose: str, round: int, shape: tuple[int, ...]) -> Any:
        return torch.randn(self.size, *shape, dtype=self.dtype)

    monkeypatch.setattr(Streams, "normal", normal)


def first_eigenvector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform forcing that stays where it starts."""
    from otafl.receivers import eigen, uniform_forcing

    monkeypatch.setattr(uniform_forcing.UniformForcing, "combine", eigen.Eigen.combine)


def natural_logarithm(monkeypatch: pytest.MonkeyPatch) -> None:
    from otafl.uplink.digital import capacity

    monkeypatch.setattr(capacity, "bits_a_use", lambda snr: torch.log1p(snr).mean(-1))


def coarse_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter with half the levels."""
    from otafl.uplink.impairments.impairments import Impairments

    real = Impairments.quantise

    def quantise(self: Impairments, received: Any) -> Any:
        coarse = copy.copy(self)
        coarse.settings = self.settings.model_copy(update={"adc_bits": self.settings.adc_bits - 1})
        return real(coarse, received)

    monkeypatch.setattr(Impairments, "quantise", quantise)


MUTATIONS: dict[str, tuple[str, Patch]] = {
    "eta of channel inversion": (
        "power ci: scalars",
        scaled("otafl.power.ci.amplitude_bound", 0.7),
    ),
    "twice the power": ("power ci: power within", scaled("otafl.power.ci.amplitude_bound", 1.4)),
    "full power's scalar": ("power full: error", scaled("otafl.power.scalars.mmse_root", 1.5)),
    "index off by one": ("power cao_static: scalars", cao_off_by_one),
    "mean gain left out": (
        "power gbma: mean gain",
        constant("otafl.channels.rayleigh:Rayleigh.unit_mean_amplitude", 1.0),
    ),
    "E1 left out": (
        "power tci: long-term",
        scaled("otafl.channels.rayleigh:Rayleigh.mean_inverse", 0.5),
    ),
    "sign of the deviation": ("power smcv: scalars", scaled("otafl.power.smcv._solve", 0.9)),
    "receive scaling of blind": ("power blind: error falls", blind_of_half_the_antennas),
    "planned power": (
        "power cao_average: average power",
        scaled("otafl.power.cao_average.multipliers", 2.0),
    ),
    "N for sigma^2": (
        "over_the_air: one receiver",
        constant("otafl.uplink.impairments.impairments.NOISE_VARIANCE", 1.0),
    ),
    "noise of every device": ("receiver: noise is", noise_of_every_device),
    "reported error": ("power full: NMSE", reported_error),
    "half the phase": (
        "residual phase: variance",
        scaled("otafl.uplink.impairments.impairments:Impairments.phases", 0.5),
    ),
    "carrier offset": (
        "carrier offset",
        scaled("otafl.uplink.impairments.impairments:Impairments.offsets", 0.5),
    ),
    "aligned sample": (
        "aligned sample",
        scaled("otafl.uplink.impairments.bent.aligned_noise", 0.5),
    ),
    "quadratic clipping": (
        "clipping: peak",
        scaled("otafl.uplink.impairments.impairments.db_to_linear", 2.0),
    ),
    "converter": ("ADC", coarse_converter),
    "mean interference": (
        "interference: mean",
        scaled("otafl.uplink.impairments.impairments.db_to_linear", 2.0),
    ),
    "scale of heavy tails": (
        "heavy tails: characteristic",
        scaled("otafl.uplink.impairments.impairments:Impairments.tails", 1.1),
    ),
    "combiner without unit norm": (
        "receiver: no gain",
        scaled("otafl.receivers.mrc.normalised", 2.0),
    ),
    "uniform forcing": ("uniform_forcing", first_eigenvector),
    "bits": ("digital: airtime", natural_logarithm),
    "fading power": (
        "rayleigh: mean power",
        scaled("otafl.channels.scattering:BlockFading._drawn", 1.2),
    ),
    "Doppler": ("rayleigh: autocorrelation", scaled("otafl.channels.jakes.doppler_hz", 2.0)),
    "K-factor": ("rician: amplitude", scaled("otafl.channels.rician:LineOfSight.draw", 1.2)),
    "estimate's variance": ("csi error: variance", scaled("otafl.csi.error.device_errors", 1.4)),
    "pilots": (
        "csi pilots: error of least",
        scaled("otafl.csi.pilots.device_errors", 1.4),
    ),
    "Onsager term left out": ("state evolution", no_onsager),
    "one threshold for all ratios": (
        "default threshold",
        constant("otafl.codecs.sensing.default_threshold", lambda *of: 1.5),
    ),
    "rounding down": ("qsgd: unbiased", nearest_level),
    "lost updates forgotten": ("error feedback loses nothing", everyone_heard),
    "vote": ("majority vote", scaled("otafl.codecs.obda:Obda._vote", -1.0)),
    "global generator": ("streams: the same seed", global_noise),
    "trials that differ in a stack": ("streams: stacked", global_noise),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_laws_can_fail(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, patch = MUTATIONS[mutation]
    assert failing(text, patch, monkeypatch, QUICK)
