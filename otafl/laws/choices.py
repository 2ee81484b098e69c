"""Laws of random choices: selections of devices, stragglers, capacity levels, forwarded models.

Those of selections over fading are closed forms of Rayleigh fading.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.baselines.fedprox import draw_num_steps
from otafl.algorithms.personal.fedfomo import FedFomo
from otafl.codecs.sparse import draw_random_subset
from otafl.core import registry
from otafl.core.contracts import Cohort, LinkBudget, LocalContext
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.laws.bench import CONFORMANCE, Bench
from otafl.laws.checks import (
    Check,
    check_at_least,
    check_exact,
    check_mean,
    check_share,
    counts,
    largest,
    state_law,
)
from otafl.laws.mutations import build_mutations, change_result, replace_by, replace_by_value
from otafl.models.dropout import draw_dropout
from otafl.models.softmax_regression import SoftmaxRegression
from otafl.selection.base import SelectionSetup
from otafl.selection.choosing import draw_subset
from otafl.submodels.dynamic import DynamicLevels

TRIALS, ROUNDS = 20, 400
LEAST_SNR_DB = -3.0
RENYI = "Renyi 1953; sums of 1 / j"
BEST = ((1, 2), (1, 10), (3, 10))
"""Numbers of devices that are selected, and of all devices."""


def _check_counts(share: Tensor | np.ndarray, times: Tensor, of: int, case: str = "") -> Check:
    """Check how often each of several events happens, by the largest deviation."""
    p = torch.as_tensor(share, dtype=torch.float64).expand_as(times)
    off = (times.double().cpu() - of * p.cpu()) / (of * p * (1.0 - p)).sqrt().cpu()
    return largest(off.numpy(), case)


@functools.lru_cache(maxsize=4)
def _select(
    bench: Bench, name: str, wanted: int, gains: tuple[float, ...], **hyper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the selected devices [R, S, K] under Rayleigh fading, and their channel power gains.

    Devices have the mean power gains `gains`, and a budget of one. They know their channels.
    """
    trials = bench.scale_size(TRIALS)
    streams = Streams([9] * trials, range(trials), bench.torch_device, torch.float64)
    one = torch.ones(trials, dtype=torch.float64, device=bench.torch_device)
    gain = torch.tensor(gains, dtype=torch.float64, device=bench.torch_device).expand(trials, -1)
    budget = LinkBudget(torch.ones_like(gain), gain, one, one, one.bool())
    fading = registry.load_settings_class("channel", "rayleigh")()
    channel: Any = registry.make_component("channel", fading, budget, len(gains), streams, {})
    known: Any = SimpleNamespace(estimate=lambda h, gain, round: h)
    setup = SelectionSetup(known, budget, streams, {k: v * one for k, v in hyper.items()})
    section = registry.load_settings_class("selection", name)()
    selection: Any = registry.make_component("selection", section, setup)
    free = np.ones((trials, len(gains)), bool)
    chosen, power = [], []
    for round in range(ROUNDS):
        state = channel.get_state(round)
        chosen.append(selection.select_devices(free, wanted, round, state))
        power.append((state.gain * state.h[..., 0, 0, 0].abs().square()).cpu().numpy())
    return np.stack(chosen), np.stack(power)


@state_law("selection best_channel: sum of the best gains", RENYI, "{0[0]} of {0[1]}", BEST)
def _best_channel(bench: Bench, case: tuple[int, int]) -> Iterator[Check]:
    """Compare the total power gain of the selected devices, whose mean gain is one.

    The i-th largest of K exponential numbers has the mean sum_{j=i}^K 1 / j.
    """
    wanted, devices = case
    chosen, power = _select(bench, "best_channel", wanted, (1.0,) * devices)
    law = sum(1.0 / j for i in range(1, wanted + 1) for j in range(i, devices + 1))
    yield check_mean(law, (power * chosen).sum(2))


GAINS = (0.5, 1.0, 4.0)


@state_law("selection threshold: share of rounds", "exp(-threshold / SNR)")
def _threshold(bench: Bench) -> Iterator[Check]:
    chosen, _ = _select(bench, "threshold", 3, GAINS, min_snr_db=LEAST_SNR_DB)
    for device, gain in enumerate(GAINS):
        law = np.exp(-db_to_linear(LEAST_SNR_DB) / gain)
        there = chosen[:, :, device]
        yield check_share(float(law), int(there.sum()), there.size, f"SNR {gain:g}")


APART = (1e-5, 1e-4, 1e-3)
"""Mean gains at which a rate is proportional to the gain."""


@state_law("selection proportional_fair: all alike", "Viswanath, Tse, Laroia 2002; 1 / K, H_K")
def _fair(bench: Bench) -> Iterator[Check]:
    """Compare how often devices with mean gains 20 dB apart are selected, after 100 rounds.

    At low SNR the rate over its average has one law for all devices. Each is served at its peaks,
    nearly at the best of three gains, of the mean 1 + 1/2 + 1/3. The best channel is nearly always
    that of the strongest device.
    """
    chosen, power = _select(bench, "proportional_fair", 1, APART, window=50.0)
    late = chosen[100:]
    spread = np.sqrt(2.0 / 9.0 / len(late))  # an upper bound, as selections repel each other
    yield largest((late.mean(0) - 1.0 / 3.0) / spread, "share of the rounds")
    served = (power * chosen)[100:].sum(0) / late.sum(0) / np.array(APART)
    yield check_mean(11.0 / 6.0, served.mean(1), "gain when served", bias=0.05 * 11.0 / 6.0)
    best, _ = _select(bench, "best_channel", 1, APART)
    yield check_at_least(0.85, float(best[:, :, 2].mean()), "the strongest by best_channel")


@state_law("selection poisson: independent devices", "binomial; q, and q^2 of pairs")
def _poisson(bench: Bench) -> Iterator[Check]:
    """Count how often each of five devices of two trials is selected, and pairs of them.

    Pairs are those of neighbouring devices, and of two rounds of a device.
    """
    q = torch.tensor([0.1, 0.7], dtype=torch.float64)
    streams = Streams([1, 1], [0, 1], bench.torch_device, torch.float64)
    setup: Any = SimpleNamespace(streams=streams, hyper={"probability": q})
    section = registry.load_settings_class("selection", "poisson")()
    selection: Any = registry.make_component("selection", section, setup)
    free, rounds = np.ones((2, 5), bool), bench.scale_size(4000)
    state: Any = None
    drawn = np.stack([selection.select_devices(free, 5, t, state) for t in range(rounds)])
    chosen, share = torch.from_numpy(drawn), q[:, None]
    yield _check_counts(share, chosen.sum(0), rounds, "devices")
    pairs = chosen[:, :, :-1] & chosen[:, :, 1:]
    yield _check_counts(share**2, pairs.sum(0), rounds, "neighbours")
    twice = chosen[0::2] & chosen[1::2]
    yield _check_counts(share**2, twice.sum(0), len(twice), "two rounds")


def _build_cohort(bench: Bench, sizes: Sequence[int]) -> tuple[Cohort, Streams]:
    """Build a cohort of trials of several sizes."""
    place = bench.torch_device
    trial = torch.arange(len(sizes), device=place).repeat_interleave(
        torch.tensor(sizes, device=place)
    )
    device = torch.cat([torch.arange(size, device=place) for size in sizes])
    weight = torch.ones(len(trial), device=place)
    streams = Streams([0] * len(sizes), range(len(sizes)), place)
    return Cohort.create(trial, device, weight, tuple(sizes), max(sizes)), streams


@state_law("selection of transmitters: equally likely sets", "hypergeometric")
def _transmitters(bench: Bench) -> Iterator[Check]:
    """Count how often two of 5, of 1 and of 8 participants transmit, and neighbours both do."""
    sizes, rounds = (5, 1, 8), bench.scale_size(1600)
    cohort, streams = _build_cohort(bench, sizes)
    drawn = torch.stack([draw_subset(cohort, 2, t, streams) for t in range(rounds)])
    for size, part in zip(sizes, drawn.split(sizes, 1), strict=True):
        few = min(size, 2)
        most = float((part.sum(1) - few).abs().max())
        yield check_exact(0.0, most, 0.0, f"of {size}, number")
        if size > few:
            yield _check_counts(np.array(2 / size), part.sum(0), rounds, f"of {size}")
            both = (part[:, :-1] & part[:, 1:]).sum(0)
            yield _check_counts(np.array(2 / size / (size - 1)), both, rounds, f"of {size}, pairs")


@state_law("algorithm fedprox: steps of stragglers", "chi-square")
def _stragglers(bench: Bench) -> Iterator[Check]:
    """Count the steps of many devices, half of which take one to six steps."""
    devices, steps = bench.scale_size(20_000), 6
    cohort, streams = _build_cohort(bench, (devices,))
    data: Any = SimpleNamespace(steps=steps)
    drawn = draw_num_steps(0.5, LocalContext(cohort, {}, streams, 3, data)).cpu().numpy()
    law = devices * np.array([1 / 12] * 5 + [7 / 12])
    found = np.bincount(drawn, minlength=steps + 1)
    yield check_exact(devices, float(found[1:].sum()), 0.0, "one to six")
    yield counts(law, found[1 : steps + 1])


@state_law("algorithm fedfomo: forwarded models", "M / (K - 1) of random ones")
def _offers(bench: Bench) -> Iterator[Check]:
    """Count how often each of seven other models is forwarded, three in a round.

    They are random if all are explored, and if no device has an affinity. With explore = 0.5 the
    device with the largest affinity is missing only if all three are explored, with 4 / 7.
    """
    devices, wanted, rounds = 8, 3, bench.scale_size(800)
    model = SoftmaxRegression(SoftmaxRegression.Settings(), (2,), 2)
    method = FedFomo(FedFomo.Settings(models=wanted), model, devices)
    streams = Streams([1], [0], bench.torch_device, torch.float64)
    none = torch.zeros(1, devices, devices, dtype=torch.float64, device=bench.torch_device)
    others = ~torch.eye(devices, dtype=torch.bool)

    def count(explore: float, affinity: Tensor) -> Tensor:
        """Count the offers [K, K] of one device to another."""
        hyper = {"explore": none[:, 0, 0] + explore, "explore_decay": none[:, 0, 0]}
        offers = (method.offer(affinity, t, hyper, streams)[0] for t in range(rounds))
        given = torch.stack([none[0].scatter(1, offer, 1.0) for offer in offers])
        return given.sum(0).cpu()

    ranked = none + torch.arange(float(devices), device=none.device)
    for case, explore, affinity in (("explored", 1.0, ranked), ("no affinity", 0.0, none)):
        found = count(explore, affinity)
        yield check_exact(0.0, float(found.diagonal().sum()), 0.0, f"{case}, itself")
        yield check_exact(rounds * wanted * devices, float(found.sum()), 0.0, f"{case}, all")
        yield _check_counts(np.array(wanted / (devices - 1)), found[others], rounds, case)
    liked = none.clone()
    liked[0, :, 5] = 1.0
    to = torch.arange(devices) != 5
    yield _check_counts(
        np.array(1.0 - 0.125 * 4.0 / 7.0), count(0.5, liked)[to, 5], rounds, "liked"
    )


@state_law("capacity_levels dynamic: shares", "chi-square")
def _levels(bench: Bench) -> Iterator[Check]:
    """Count the levels of eight devices over many rounds, and those of a device's next round."""
    devices, rounds = 8, bench.scale_size(400)
    cohort, streams = _build_cohort(bench, (devices,))
    link = SimpleNamespace(streams=streams)
    setup: Any = SimpleNamespace(submodels=(None,) * 3, link=link)
    levels = DynamicLevels(DynamicLevels.Settings(shares=(2, 1, 1)), setup)
    state: Any = None
    drawn = np.stack([levels.assign_levels(cohort, t, state).cpu().numpy() for t in range(rounds)])
    share = np.array([0.5, 0.25, 0.25])
    yield counts(drawn.size * share, np.bincount(drawn.ravel(), minlength=3), "devices")
    again = int((drawn[1::2] == drawn[0::2]).sum())
    yield check_share(float((share**2).sum()), again, drawn[1::2].size, "in two rounds")


@state_law("codec random_subset: equally likely subsets", "hypergeometric")
def _subsets(bench: Bench) -> Iterator[Check]:
    """Count how often each coordinate of eight, and each pair, is among three that are sent."""
    draws = bench.scale_size(20_000)
    streams = Streams([1], [0], bench.torch_device)
    some = draw_random_subset(streams.draw_uniform(CONFORMANCE, 0, (draws, 8))[0], 3).double()
    yield check_exact(0.0, float((some.sum(1) - 3.0).abs().max()), 0.0, "number")
    law = torch.full((8, 8), 3 / 8 * 2 / 7, dtype=torch.float64).fill_diagonal_(3 / 8)
    yield _check_counts(law, (some.mT @ some).cpu(), draws)


@state_law("model dropout: factors", "E m = 1, E m^2 = 1 / (1 - p)", "p={:g}", (0.1, 0.5, 0.9))
def _dropout(bench: Bench, share: float) -> Iterator[Check]:
    """Count the factors of 0, and compare the others with 1 / (1 - p)."""
    keys = torch.tensor([3, -4], dtype=torch.int64, device=bench.torch_device)
    shape = (bench.scale_size(200), 100)
    factors = draw_dropout(keys, 0, shape, share, torch.float64).cpu()
    kept = factors != 0
    yield check_exact(1.0 / (1.0 - share), float(factors[kept].unique().max()), 0.0, "largest")
    yield check_exact(1.0 / (1.0 - share), float(factors[kept].unique().min()), 0.0, "smallest")
    yield check_share(share, int((~kept).sum()), factors.numel(), "zeros")


# Mutations


def _keep_decibels(real: Any) -> Any:
    """Compare the SNR with the threshold in dB."""
    return lambda db: db.abs() if isinstance(db, Tensor) else real(db)


def _share_keys(real: Any) -> Any:
    """Use for neighbouring devices one random number."""

    def draw(*args: Any) -> Any:
        key = real(*args)
        return key[..., np.arange(key.shape[-1]) // 2 * 2]

    return draw


def _prefer_low_numbers(real: Any) -> Any:
    """Raise the keys of devices by their number."""

    def subset(cohort: Cohort, wanted: int, round: int, streams: Any) -> Any:
        def draw(purpose: Any, round: int, trial: Any, device: Any, shape: Any) -> Any:
            key = streams.draw_device_uniform(purpose, round, trial, device, shape)
            return key + 0.1 * device[:, None]

        return real(cohort, wanted, round, SimpleNamespace(draw_device_uniform=draw))

    return subset


def _straggle_more(real: Any) -> Any:
    return lambda share, context: real(1.2 * share, context)


def _break_ties_by_number(real: Any) -> Any:
    """Prefer high numbers among devices of one affinity."""

    def offer(self: Any, affinity: Any, round: int, hyper: Any, streams: Any) -> Any:
        order = 1e-9 * torch.arange(affinity.shape[2], device=affinity.device)
        return real(self, affinity + order, round, hyper, streams)

    return offer


def _one_level(real: Any) -> Any:
    """Assign the levels of the first round in every round."""
    return lambda self, cohort, round, state: real(self, cohort, 0, state)


def _without_scale(factors: Tensor) -> Tensor:
    return (factors != 0).to(factors)


MUTATIONS = (
    build_mutations(
        "selection ",
        {
            "the worst channels": (
                {"best_channel: sum of the best gains", "proportional_fair: all alike"},
                change_result("otafl.selection.best_channel:to_host", lambda gains: -gains),
            ),
            "rates over a constant": (
                "proportional_fair: all alike",
                replace_by_value("otafl.selection.proportional_fair:LEAST", 1e9),
            ),
            "a threshold in dB": (
                "threshold: share of rounds",
                replace_by("otafl.selection.threshold:db_to_linear", _keep_decibels),
            ),
            "one key for two devices": (
                "poisson: independent devices",
                replace_by("otafl.selection.poisson:draw_random_key", _share_keys),
            ),
            "low numbers of devices more often": (
                "of transmitters: equally likely sets",
                replace_by("otafl.laws.choices:draw_subset", _prefer_low_numbers),
            ),
        },
    )
    + build_mutations(
        "algorithm fedprox: ",
        {
            "more stragglers": (
                "steps of stragglers",
                replace_by("otafl.laws.choices:draw_num_steps", _straggle_more),
            ),
        },
    )
    + build_mutations(
        "algorithm fedfomo: ",
        {
            "ties by the number of the device": (
                "forwarded models",
                replace_by(
                    "otafl.algorithms.personal.fedfomo:FedFomo.offer", _break_ties_by_number
                ),
            ),
        },
    )
    + build_mutations(
        "capacity_levels dynamic: ",
        {
            "levels of the first round": (
                "shares",
                replace_by("otafl.submodels.dynamic:DynamicLevels.assign_levels", _one_level),
            ),
        },
    )
    + build_mutations(
        "codec random_subset: ",
        {
            "neighbours together": (
                "equally likely subsets",
                replace_by(
                    "otafl.laws.choices:draw_random_subset",
                    lambda real: lambda draw, count: real(draw + 0.5 * draw.roll(1, 1), count),
                ),
            ),
        },
    )
    + build_mutations(
        "model dropout: ",
        {
            "outputs that are not scaled": (
                "factors",
                change_result("otafl.laws.choices:draw_dropout", _without_scale),
            ),
        },
    )
)
