"""Laws of devices: when they are present, what hardware they have, and how long they compute."""

from __future__ import annotations

import bisect
import copy
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

from otafl.core import registry
from otafl.core.rng import Streams
from otafl.devices.availability import AvailabilitySetup
from otafl.devices.compute.base import Compute
from otafl.devices.compute.classes import Classes
from otafl.devices.compute.drawn import Drawn
from otafl.devices.compute.fixed import Fixed
from otafl.devices.compute.lognormal import Lognormal
from otafl.devices.compute.phone import Phone
from otafl.devices.hardware import Hardware
from otafl.devices.jitter import Jitter
from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_distribution,
    check_exact,
    check_mean,
    check_mean_square,
    check_normal,
    check_share,
    counts,
    state_law,
)
from otafl.laws.mutations import build_mutations, replace_by, scale_result

DEVICES = 3000
"""Devices whose presence is recorded."""

SAMPLES = 20_000
"""Devices whose hardware is drawn."""

DAY_S = 86400.0
ON_S, OFF_S = 20.0, 30.0
SHARE = ON_S / (ON_S + OFF_S)
GILBERT = "Gilbert 1960; two-state Markov process"

DAYS: dict[str, dict[str, float]] = {
    "short sessions": {"mean": 0.6, "amplitude": 0.38, "mean_session_s": 3600.0},
    "long sessions": {"mean": 0.4, "amplitude": 0.2, "mean_session_s": 21600.0},
}
PEAK_HOUR, START_HOUR = 20.0, 6.0

Life = list[tuple[float, bool]]


@functools.lru_cache(maxsize=4)
def _record_lives(bench: Bench, name: str, until_s: float, **keys: float) -> list[Life]:
    """Record the changes of presence of each device, which begin with its state at 0."""
    devices = bench.scale_size(DEVICES)
    section = registry.load_settings_class("availability", name)(**keys)
    setup = AvailabilitySetup(devices, Streams([11], [0]))
    availability: Any = registry.make_component("availability", section, setup)
    lives = []
    for device in range(devices):
        changes = availability.list_changes(0, device)
        life = list(itertools.takewhile(lambda change: change[0] <= until_s, changes))
        lives.append(life if life and life[0][0] == 0.0 else [(0.0, True), *life])
    return lives


def _is_present(life: Life, at_s: float) -> bool:
    return life[bisect.bisect_right(life, (at_s, True)) - 1][1]


def _check_presence(lives: list[Life], at_s: float, share: float, case: str) -> Check:
    return check_share(share, sum(_is_present(life, at_s) for life in lives), len(lives), case)


def _measure_stays(lives: list[Life], present: bool, before_s: float) -> np.ndarray:
    """Return the lengths of stays, or absences, that began after 0 and before an instant."""
    return np.array(
        [
            end[0] - start[0]
            for life in lives
            for start, end in itertools.pairwise(life)
            if start[1] == present and 0 < start[0] < before_s
        ]
    )


def _record_markov(bench: Bench) -> list[Life]:
    return _record_lives(bench, "markov", 400.0, mean_on_s=ON_S, mean_off_s=OFF_S)


@state_law("availability markov: share from the start", GILBERT)
def _markov_share(bench: Bench) -> Iterator[Check]:
    for at_s in (0.0, 2.0, 5.0, 300.0):
        yield _check_presence(_record_markov(bench), at_s, SHARE, f"after {at_s:g} s")


@state_law("availability markov: exponential stays", GILBERT)
def _markov_stays(bench: Bench) -> Iterator[Check]:
    """Compare stays and absences that begin in the first 100 s; nearly all end before 400 s."""
    for present, mean_s in ((True, ON_S), (False, OFF_S)):
        stays = _measure_stays(_record_markov(bench), present, 100.0)
        case = "present" if present else "absent"
        yield check_distribution(stays, stats.expon(scale=mean_s).cdf, case)


@state_law("availability markov: memory", "p +- ((1 - p) or p) exp(-(1/on + 1/off) t)")
def _markov_memory(bench: Bench) -> Iterator[Check]:
    """Count the devices present t after starts 100 s apart, of those present or absent there.

    After 100 s nearly nothing is left of a state, so the starts are independent.
    """
    lives, starts_s = _record_markov(bench), range(0, 400, 100)
    for at_s in (3.0, 10.0):
        left = math.exp(-(1.0 / ON_S + 1.0 / OFF_S) * at_s)
        for present, case in ((True, "present"), (False, "absent")):
            later = [
                _is_present(life, start_s + at_s)
                for life in lives
                for start_s in starts_s
                if _is_present(life, start_s) == present
            ]
            law = SHARE + (present - SHARE) * left
            yield check_share(law, sum(later), len(later), f"{case}, {at_s:g} s later")


def _record_day(bench: Bench, case: str) -> list[Life]:
    hours = {"peak_hour": PEAK_HOUR, "start_hour": START_HOUR}
    return _record_lives(bench, "diurnal", DAY_S, **DAYS[case], **hours)


@state_law("availability diurnal: share over the day", "m + a cos(w (t - peak))", "{}", DAYS)
def _day_share(bench: Bench, case: str) -> Iterator[Check]:
    """Count the present devices every four hours."""
    keys = DAYS[case]
    for hour in range(0, 25, 4):
        angle = 2.0 * math.pi * (hour + START_HOUR - PEAK_HOUR) / 24.0
        law = keys["mean"] + keys["amplitude"] * math.cos(angle)
        yield _check_presence(_record_day(bench, case), hour * 3600.0, law, f"after {hour} h")


@state_law("availability diurnal: exponential sessions", "constant rate of leaving")
def _day_sessions(bench: Bench) -> Iterator[Check]:
    """Compare the sessions of an hour on average that begin in the first 18 hours."""
    stays = _measure_stays(_record_day(bench, "short sessions"), True, 0.75 * DAY_S)
    scale = DAYS["short sessions"]["mean_session_s"]
    yield check_distribution(stays, stats.expon(scale=scale).cdf)


@state_law("availability diurnal: spread peaks", "amplitude times sinc(spread / 24)")
def _day_spread(bench: Bench) -> Iterator[Check]:
    """Count the present devices over 20 hours, with peaks spread over 12 hours."""
    keys = {"mean": 0.5, "amplitude": 0.4, "spread_hours": 12.0, "mean_session_s": 3600.0}
    hours = {"peak_hour": 0.0, "start_hour": 0.0}
    lives = _record_lives(bench, "diurnal", 20 * 3600.0, **keys, **hours)
    for hour in (0, 5, 12, 20):
        law = 0.5 + 0.4 * np.sinc(12.0 / 24.0) * math.cos(2.0 * math.pi * hour / 24.0)
        yield _check_presence(lives, hour * 3600.0, float(law), f"after {hour} h")


def _build_hardware(bench: Bench, section: Compute, seed: int) -> Hardware:
    return section.build_hardware(bench.scale_size(SAMPLES), np.random.default_rng(seed))


@state_law("compute classes: shares", "chi-square")
def _class_shares(bench: Bench) -> Iterator[Check]:
    shares = {1e9: 5.0, 2e9: 3.0, 4e9: 2.0}
    classes = [{"flops_per_s": speed, "share": share} for speed, share in shares.items()]
    section = Classes.model_validate({"classes": classes, "assignment": "random"})
    speeds = _build_hardware(bench, section, 3).flops_per_s
    found = np.array([(speeds == speed).sum() for speed in shares])
    yield check_exact(len(speeds), float(found.sum()), 0.0, "all devices")
    yield counts(len(speeds) * np.array(list(shares.values())) / 10.0, found, "shares")


MEDIAN, SIGMA = 3e9, 0.8
"""Median of log-normal speeds, and the standard deviation of their logarithms."""


def _check_logs(speeds: np.ndarray, case: str) -> Iterator[Check]:
    """Check log-normal speeds: the distribution, mean and variance of their logarithms."""
    logs, centre = np.log(speeds), math.log(MEDIAN)
    yield check_distribution(logs, stats.norm(centre, SIGMA).cdf, case)
    yield check_mean(centre, logs, f"{case}, mean")
    ratio = ((logs - centre) / SIGMA) ** 2
    yield check_mean_square(SIGMA**2, ratio, ratio.size, f"{case}, variance")


def _draw_quantities(bench: Bench) -> Hardware:
    section = Drawn.model_validate(
        {
            "flops_per_s": {"lognormal": {"median": MEDIAN, "sigma": SIGMA}},
            "battery_j": {"uniform": [100, 300]},
            "harvest_w": {"normal": {"mean": 2.0, "std": 1.5, "least": 1.0}},
            "memory_mb": {"choice": [1, 2, 2, 8]},
        }
    )
    return _build_hardware(bench, section, 4)


@state_law("compute drawn: laws of the quantities", "uniform, log-normal, normal, choice")
def _quantities(bench: Bench) -> Iterator[Check]:
    """Compare a quantity of each kind; the normal one is conditioned on values above its least."""
    devices = _draw_quantities(bench)
    yield from _check_logs(devices.flops_per_s, "log-normal")
    yield check_distribution(devices.battery_j, stats.uniform(100.0, 200.0).cdf, "uniform")
    above = stats.truncnorm((1.0 - 2.0) / 1.5, np.inf, 2.0, 1.5)
    yield check_distribution(devices.harvest_w, above.cdf, "normal")
    yield check_at_least(1.0, float(devices.harvest_w.min()), "least")
    memory = devices.memory_mb
    found = np.array([(memory == value).sum() for value in (1.0, 2.0, 8.0)])
    yield check_exact(memory.size, float(found.sum()), 0.0, "values")
    yield counts(memory.size * np.array([0.25, 0.5, 0.25]), found, "choice")


@state_law("compute drawn: independent quantities", "Spearman's rank correlation")
def _independent_quantities(bench: Bench) -> Iterator[Check]:
    devices = _draw_quantities(bench)
    columns = {name: getattr(devices, name) for name in ("flops_per_s", "battery_j", "harvest_w")}
    for (one, first), (other, second) in itertools.combinations(columns.items(), 2):
        yield _check_ranks(first, second, f"{one}, {other}")


def _check_ranks(first: np.ndarray, second: np.ndarray, case: str = "") -> Check:
    """Check that the rank correlation of independent pairs is 0; it is normal for many pairs."""
    found = float(stats.spearmanr(first, second).statistic)
    return check_normal(0.0, found, 1.0 / math.sqrt(len(first) - 1), case)


@state_law("compute lognormal: speeds", "log-normal")
def _speeds(bench: Bench) -> Iterator[Check]:
    section = Lognormal(median_flops_per_s=MEDIAN, sigma=SIGMA)
    yield from _check_logs(_build_hardware(bench, section, 1).flops_per_s, "logarithms")


@state_law("compute phone: speeds", "uniform, four operations a cycle at 1 to 2 GHz")
def _phones(bench: Bench) -> Iterator[Check]:
    speeds = _build_hardware(bench, Phone(), 2).flops_per_s
    yield check_distribution(speeds, stats.uniform(4e9, 4e9).cdf)


SCALES = (0.8, 0.3)
"""Scales of the jitter of two trials."""


def _draw_jitter(bench: Bench, kind: Any, round: int) -> np.ndarray:
    """Draw the factors of many devices of two trials, [2, K]."""
    sections = [Fixed(jitter=kind, jitter_scale=scale) for scale in SCALES]
    devices = torch.arange(bench.scale_size(SAMPLES), device=bench.torch_device)
    trial = torch.arange(2, device=bench.torch_device).repeat_interleave(len(devices))
    jitter = Jitter(sections, Streams([7, 7], [0, 1], bench.torch_device))
    factors = jitter.draw_factor(trial, devices.repeat(2), round)
    assert factors is not None
    return factors.reshape(2, -1)


@state_law("jitter: law and mean", "Lee et al. 2018; mean 1", "{}", ("exponential", "lognormal"))
def _jitter(bench: Bench, kind: str) -> Iterator[Check]:
    for scale, factors in zip(SCALES, _draw_jitter(bench, kind, 3), strict=True):
        law = stats.lognorm(scale, scale=math.exp(-(scale**2) / 2.0))
        if kind == "exponential":
            law = stats.expon(1.0 - scale, scale)
        yield check_distribution(factors, law.cdf, f"scale {scale:g}")
        yield check_mean(1.0, factors, f"scale {scale:g}, mean")


@state_law("jitter: independent rounds", "Spearman's rank correlation")
def _jitter_rounds(bench: Bench) -> Iterator[Check]:
    first, second = (_draw_jitter(bench, "exponential", round)[0] for round in (0, 1))
    yield _check_ranks(first, second)


# Mutations


def _present_at_first(real: Any) -> Any:
    """Make every device present at the start."""

    def list_changes(self: Any, trial: int, device: int) -> Any:
        for at_s, there in real(self, trial, device):
            if at_s > 0.0:
                yield at_s, there

    return list_changes


def _without_spread(real: Any) -> Any:
    """Use one peak for all devices."""

    def list_changes(self: Any, trial: int, device: int) -> Any:
        settings = self.settings
        self.settings = settings.model_copy(update={"spread_hours": 0.0})
        try:
            yield from real(self, trial, device)
        finally:
            self.settings = settings

    return list_changes


def _return_by_common_peak(real: Any) -> Any:
    """Use the own peak of a device for its state at the start, and one peak for all returns."""

    def list_changes(self: Any, trial: int, device: int) -> Any:
        first = self.setup.build_generator(trial, device).random()  # the draw of the peak
        shift_s = self.settings.spread_hours * (first - 0.5) * self._hour_s
        changed = copy.copy(self)
        changed._draw_return_s = lambda at_s, draw: (
            self._draw_return_s(at_s + shift_s, draw) - shift_s
        )
        return real(changed, trial, device)

    return list_changes


def _narrow_by_a_tenth(real: Any) -> Any:
    """Use 0.9 of the deviation of the logarithms."""

    def compute_quantile(self: Any, u: Any) -> Any:
        median = self.lognormal.median
        return median * (real(self, u) / median) ** 0.9

    return compute_quantile


class _OneDraw:
    """Generator that draws one uniform number for all quantities of a device."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def random(self, shape: tuple[int, int]) -> Any:
        return np.broadcast_to(self._generator.random((shape[0], 1)), shape)


def _one_draw(real: Any) -> Any:
    return lambda self, devices, generator: real(self, devices, _OneDraw(generator))


def _one_round(real: Any) -> Any:
    return lambda self, trial, device, round: real(self, trial, device, 0)


MARKOV = "otafl.devices.availability.markov:MarkovAvailability.list_changes"
DIURNAL = "otafl.devices.availability.diurnal:DiurnalAvailability"
COMPUTE = "otafl.devices.compute"

MUTATIONS = (
    build_mutations(
        "availability markov: ",
        {
            "all present at the start (markov)": (
                {"share from the start", "memory"},
                replace_by(MARKOV, _present_at_first),
            ),
        },
    )
    + build_mutations(
        "availability diurnal: ",
        {
            "one peak for all": (
                "spread peaks",
                replace_by(f"{DIURNAL}.list_changes", _without_spread),
            ),
            "one peak for all returns": (
                "spread peaks",
                replace_by(f"{DIURNAL}.list_changes", _return_by_common_peak),
            ),
            "changes at 0.8 of the time": (
                {"share over the day", "exponential sessions", "spread peaks"},
                replace_by(
                    f"{DIURNAL}.list_changes",
                    lambda real: lambda *args: ((0.8 * at_s, on) for at_s, on in real(*args)),
                ),
            ),
        },
    )
    + build_mutations(
        "availability markov: ",
        {
            "changes at 0.8 of the time": (
                {"exponential stays", "memory"},
                replace_by(
                    MARKOV,
                    lambda real: lambda *args: ((0.8 * at_s, on) for at_s, on in real(*args)),
                ),
            ),
        },
        quick=False,
    )
    + build_mutations(
        "availability diurnal: ",
        {
            "no rate of change": (
                "share over the day",
                replace_by(
                    f"{DIURNAL}._compute_rate",
                    lambda real: (
                        lambda self, at_s: (
                            self._compute_share(at_s)
                            / self.settings.mean_session_s
                            / (1.0 - self._compute_share(at_s))
                        )
                    ),
                ),
            ),
        },
        quick=False,
    )
    + build_mutations(
        "compute ",
        {
            "classes by the root of the draw": (
                "classes: shares",
                replace_by(
                    f"{COMPUTE}.classes:Classes._assign_classes",
                    lambda real: (
                        lambda self, devices, generator: np.sort(real(self, devices, generator))[
                            (devices * generator.random(devices) ** 2).astype(int)
                        ]
                    ),
                ),
            ),
            "one draw for all quantities": (
                "drawn: independent quantities",
                replace_by(f"{COMPUTE}.drawn:Drawn.list_columns", _one_draw),
            ),
            "normal without a condition": (
                "drawn: laws of the quantities",
                replace_by(
                    f"{COMPUTE}.drawn:NormalLaw.compute_quantile",
                    lambda real: (
                        lambda self, u: np.maximum(
                            self.normal.least,
                            self.normal.mean + self.normal.std * stats.norm.ppf(u),
                        )
                    ),
                ),
            ),
            "speeds of the mean for the median": (
                "lognormal: speeds",
                replace_by(
                    f"{COMPUTE}.lognormal:Lognormal.list_columns",
                    lambda real: (
                        lambda self, *args: real(
                            self.model_copy(
                                update={
                                    "median_flops_per_s": self.median_flops_per_s
                                    * math.exp(-(self.sigma**2) / 2.0)
                                }
                            ),
                            *args,
                        )
                    ),
                ),
            ),
            "0.9 of the deviation of speeds": (
                "lognormal: speeds",
                replace_by(
                    f"{COMPUTE}.lognormal:Lognormal.list_columns",
                    lambda real: (
                        lambda self, *args: real(
                            self.model_copy(update={"sigma": 0.9 * self.sigma}), *args
                        )
                    ),
                ),
            ),
            "0.9 of the deviation of a log-normal quantity": (
                "drawn: laws of the quantities",
                replace_by(f"{COMPUTE}.drawn:LognormalLaw.compute_quantile", _narrow_by_a_tenth),
            ),
            "five operations a cycle": (
                "phone: speeds",
                replace_by(
                    f"{COMPUTE}.phone:Phone.list_columns",
                    lambda real: (
                        lambda self, *args: real(
                            self.model_copy(
                                update={"flops_per_cycle": 1.25 * self.flops_per_cycle}
                            ),
                            *args,
                        )
                    ),
                ),
            ),
        },
    )
    + build_mutations(
        "jitter: ",
        {
            "factors of mean 1.05": (
                "law and mean",
                scale_result("otafl.devices.jitter:Jitter.draw_factor", 1.05),
            ),
            "one factor for all rounds": (
                "independent rounds",
                replace_by("otafl.devices.jitter:Jitter.draw_factor", _one_round),
            ),
        },
    )
)
