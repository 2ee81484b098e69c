"""Laws of what is drawn: faults, hardware, presence, data, and random choices of methods."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.closed_forms import holds

from otafl.algorithms.baselines.zeroth_order import draw_directions
from otafl.algorithms.personal.fedfomo import FedFomo
from otafl.codecs.sparse import draw_random_subset
from otafl.core import registry
from otafl.core.contracts import Cohort, Context
from otafl.core.rng import Streams
from otafl.data.loading import load
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.by_class import DirichletMix
from otafl.data.ridge import Ridge
from otafl.devices.availability import build_lives
from otafl.devices.compute.drawn import DrawnCompute
from otafl.devices.compute.kinds import LognormalCompute
from otafl.devices.faults import Faults
from otafl.validation.bench import CONFORMANCE, Bench
from otafl.validation.checks import (
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_mean_square,
    check_normal,
    check_share,
    largest,
)

pytestmark = pytest.mark.law

SAMPLES = 5000


def make_cohort(trials: int, devices: int) -> Cohort:
    pair = torch.arange(trials * devices)
    weight = torch.ones(len(pair), dtype=torch.float64)
    return Cohort.create(pair // devices, pair % devices, weight, (devices,) * trials, devices)


@holds()
def test_devices_crash_by_themselves(bench: Bench) -> Iterator[Check]:
    chance = 0.4
    section = Faults.Settings.model_validate({"crash_probability": chance})
    faults = Faults([section] * 2, Streams([3] * 2, range(2), torch.device("cpu"), torch.float64))
    cohort, rounds = make_cohort(2, 50), range(200)
    drawn = [faults.draw_crashes(cohort, round) for round in rounds]
    hit = torch.stack([one < 1.0 for one in drawn if one is not None]).view(200, 2, 50).numpy()
    yield check_share(chance, int(hit.sum()), hit.size, "crashes")
    pairs = {
        "devices": hit[:, :, :-1] & hit[:, :, 1:],
        "rounds": hit[:-1] & hit[1:],
        "trials": hit[:, 0] & hit[:, 1],
    }
    for case, both in pairs.items():
        yield check_share(chance**2, int(both.sum()), both.size, f"two {case}")


MEDIAN, SIGMA = 3e9, 0.8
LOGNORMAL = stats.lognorm(SIGMA, scale=MEDIAN)


def check_logarithms(speeds: np.ndarray) -> Check:
    """Check the variance of the logarithms of log-normal speeds."""
    ratio = np.log(speeds / MEDIAN) ** 2 / SIGMA**2
    return check_mean_square(SIGMA**2, ratio, ratio.size, "variance of the logarithms")


@holds()
def test_quantities_of_devices_follow_their_laws(bench: Bench) -> Iterator[Check]:
    """Quantities of a device are independent."""
    section = DrawnCompute.model_validate(
        {
            "flops_per_s": {"lognormal": {"median": MEDIAN, "sigma": SIGMA}},
            "battery_j": {"uniform": [100, 300]},
            "harvest_w": {"uniform": [0.0, 0.5]},
        }
    )
    devices = section.build_hardware(SAMPLES, np.random.default_rng(4))
    columns = {name: getattr(devices, name) for name in ("flops_per_s", "battery_j", "harvest_w")}
    laws = (LOGNORMAL, stats.uniform(100.0, 200.0), stats.uniform(0.0, 0.5))
    for (name, values), law in zip(columns.items(), laws, strict=True):
        yield check_distribution(values, law.cdf, name)
    yield check_logarithms(devices.flops_per_s)
    for (one, first), (other, second) in itertools.combinations(columns.items(), 2):
        found = float(stats.spearmanr(first, second).statistic)
        yield check_normal(0.0, found, 1.0 / math.sqrt(SAMPLES - 1), f"{one}, {other}")


@holds()
def test_speeds_are_log_normal(bench: Bench) -> Iterator[Check]:
    section = LognormalCompute(median_flops_per_s=MEDIAN, sigma=SIGMA)
    speeds = section.build_hardware(SAMPLES, np.random.default_rng(1)).flops_per_s
    yield check_distribution(speeds, LOGNORMAL.cdf)
    yield check_logarithms(speeds)


@holds()
def test_spread_peaks_flatten_the_day(bench: Bench) -> Iterator[Check]:
    """Peaks spread over 12 hours take the amplitude times sinc(12 / 24)."""
    devices, hours = 750, (0, 5, 12, 20)
    keys = {"mean": 0.5, "amplitude": 0.4, "spread_hours": 12.0, "mean_session_s": 3600.0}
    section = registry.load_settings_class("availability", "diurnal")(**keys, peak_hour=0.0)
    availability: Any = section
    present = np.zeros(len(hours))
    for changes in build_lives(availability, devices, Streams([11], [0]))[0]:
        life = [(-1.0, True), *itertools.takewhile(lambda one: one[0] <= 72000.0, changes or ())]
        present += [life[bisect.bisect_right(life, (3600.0 * at, True)) - 1][1] for at in hours]
    for hour, count in zip(hours, present, strict=True):
        law = 0.5 + 0.4 * np.sinc(0.5) * math.cos(2.0 * math.pi * hour / 24.0)
        yield check_share(float(law), int(count), devices, f"after {hour} h")


@holds()
def test_the_last_device_draws_no_other_mix(bench: Bench) -> Iterator[Check]:
    """The device that draws last takes what is left, which is a mix of more classes."""
    labels = np.arange(2000) % 10
    largest_class = []
    for seed in range(200):
        task = PartitionTask(labels, 20, np.random.default_rng(seed), None)
        parts = list(DirichletMix(alpha=0.02).assign_samples(task))
        largest_class.append([np.bincount(labels[part]).max() for part in parts])
    found = np.array(largest_class)
    yield check_mean(0.0, found[:, -4:].mean(1) - found.mean(1))


@holds()
def test_labels_of_ridge_regression_have_their_noise(bench: Bench) -> Iterator[Check]:
    noise = 0.3
    data = load(Ridge(optimum_spread=0.0, label_noise=noise, user_samples=100))
    x, y = data.x_train.astype(float), data.y_train.astype(float)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    freedom = left.size - x.shape[1]
    yield check_mean_square(noise**2, (left**2).sum() / freedom / noise**2, freedom)


def check_counts(share: float | torch.Tensor, times: torch.Tensor, of: int) -> Check:
    """Check how often each of several events happens, by the largest deviation."""
    p = torch.as_tensor(share, dtype=torch.float64).expand_as(times)
    return largest(((times - of * p) / (of * p * (1.0 - p)).sqrt()).numpy())


@holds()
def test_devices_without_affinity_are_offered_alike(bench: Bench) -> Iterator[Check]:
    """Each of the seven others is among the three models of a device with 3 / 7."""
    devices, wanted, rounds = 8, 3, 200
    model: Any = SimpleNamespace(shapes={})
    method = FedFomo(FedFomo.Settings(models=wanted), model, devices)
    streams = Streams([1], [0], torch.device("cpu"), torch.float64)
    none = torch.zeros(1, devices, devices, dtype=torch.float64)
    offers = [method.offer(none, t, streams)[0] for t in range(rounds)]
    given = sum(none[0].scatter(1, offer, 1.0) for offer in offers)
    assert isinstance(given, torch.Tensor)
    others = ~torch.eye(devices, dtype=torch.bool)
    yield check_exact(0.0, float(given.diagonal().sum()), 0.0, "itself")
    yield check_counts(wanted / (devices - 1), given[others], rounds)


@holds()
def test_subsets_of_coordinates_are_equally_likely(bench: Bench) -> Iterator[Check]:
    """Of three out of eight, each coordinate and each pair."""
    streams = Streams([1], [0], torch.device("cpu"))
    some = draw_random_subset(streams.draw_uniform(CONFORMANCE, 0, (SAMPLES, 8))[0], 3).double()
    law = torch.full((8, 8), 3 / 8 * 2 / 7, dtype=torch.float64).fill_diagonal_(3 / 8)
    yield check_counts(law, some.mT @ some, SAMPLES)


@holds()
def test_directions_of_slopes_are_standard_normal(bench: Bench) -> Iterator[Check]:
    context = Context(make_cohort(1, 1), {}, Streams([1], [0], torch.device("cpu")), 0)
    zero = torch.zeros(100, dtype=torch.int64)
    directions = draw_directions(context, zero, torch.arange(100), 50)
    yield check_distribution(directions.numpy(), stats.norm.cdf)
