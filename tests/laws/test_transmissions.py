"""Laws of transmissions: powers over many rounds, blocks of coherence, and power of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from support.closed_forms import holds

from otafl.core.contracts import Group
from otafl.uplink.base import deliver
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_mean_at_most,
    check_mean_square,
    check_normal,
    check_ratios,
)

pytestmark = pytest.mark.law


@holds()
def test_an_average_budget_is_kept_over_rounds_of_few_devices(bench: Bench) -> Iterator[Check]:
    """If five of twenty devices transmit, a round has more power than all rounds on average."""
    point = {"channel": {"name": "rayleigh", "snr_db": 10.0}, "power": "cao_average"}
    rig = bench.build_rig(20, 16, point, senders=(0, 4, 8, 12, 16))
    record = rig.record(16, 4, 1.0)
    used = (record.power / record.budget).mean((0, 2))
    yield check_mean_at_most(0.8, used * 5 / 20, "over all rounds")
    yield check_mean_at_most(-1.2, -used, "less, of a round")


@holds()
def test_a_blind_sum_is_scaled_by_the_gain_of_its_transmitters(bench: Bench) -> Iterator[Check]:
    """Amiri, Duman, Gunduz 2021, eq. 12: sqrt(eta) = A beta sqrt(E) / |sum_k h_k|."""
    antennas, senders = 4, (0, 2, 3, 6)
    channel = {"name": "umi", "subcarrier_groups": 1, "antennas": antennas}
    rig = bench.build_rig(8, 4, {"channel": channel, "power": "blind"}, senders=senders)
    record = rig.record(4, 16)
    states = [rig.link.channel.get_state(round) for round in range(4)]
    h = np.stack([state.h[..., 0, 0].numpy() for state in states])[:, :, list(senders)]
    total = np.linalg.norm((np.sqrt(record.gain)[..., None] * h).sum(2), axis=-1)
    energy = (record.budget / record.m).min(-1)
    root = antennas * record.gain.mean(-1) * np.sqrt(energy) / total
    yield check_ratios(record.eta, root**2)


@holds()
def test_symbols_have_the_fade_of_their_own_block_and_group(bench: Bench) -> Iterator[Check]:
    """Ones of a device by GBMA without noise arrive with |h| / E|h|, groups in order."""
    channel = {"name": "tdl-a", "subcarrier_groups": 2, "block_symbols": 8, "snr_db": 200.0}
    rig = bench.build_rig(1, 8, {"channel": channel, "power": "gbma"})
    ones = torch.ones(8, 24).to(rig.cohort.weight)
    h = rig.link.channel.get_state(0).extend_to(24)[:, 0, 0].abs()  # [S, 3, 2]
    law = h.flatten(1).repeat_interleave(4, 1) / (math.sqrt(math.pi) / 2.0)
    yield check_ratios(rig.send(ones, 0)[0].numpy(), law.numpy())


@holds()
def test_energies_have_random_phases(bench: Bench) -> Iterator[Check]:
    """Of the same channels, estimates vary by the crossed terms of devices and by noise."""
    x, power = np.array([2.0, 1.0, 0.5, -1.0, -0.3]), 10.0
    point = {"channel": {"name": "rayleigh", "snr_db": 10.0}, "transport": "reed"}
    rig = bench.build_rig(len(x), 16, point)
    h = rig.link.channel.get_state(0).h.abs().square().flatten(1).numpy()
    sent = torch.from_numpy(x).to(rig.cohort.weight).repeat(16)[:, None].expand(-1, 4096)
    found = rig.send(sent.contiguous(), 0)[0].numpy()
    a, law = 2.0 * power / np.abs(x).max(), np.zeros(len(h))
    for part in (np.maximum(x, 0.0), np.maximum(-x, 0.0)):
        law += ((a * h * part).sum(1) + 1.0) ** 2 - ((a * h * part) ** 2).sum(1)
    law = law / a**2 / len(x) ** 2
    off = (found - (h * x).mean(1)[:, None]) / np.sqrt(law)[:, None]
    yield check_normal(0.0, float(off.mean()), 1.0 / math.sqrt(off.size), "mean")
    yield check_mean(1.0, (off**2).mean(1), "variance")


@holds(((1.0, 1.0), (0.5, 1.5)))
def test_groups_have_their_shares_of_power(
    bench: Bench, factors: tuple[float, float]
) -> Iterator[Check]:
    """The noise of a group of power factor f is N / (f P K^2), and the mean power is P."""
    devices, snr_db = 4, 3.0
    point = {"channel": {"name": "awgn", "snr_db": snr_db}, "power": "ci"}
    rig = bench.build_rig(devices, 16, point)
    rows = [rig.draw_symbols(512, round, 1.0) for round in range(2)]
    groups = tuple(
        Group({"x": x}, power_factor=torch.full_like(x[:, 0], factor))
        for x, factor in zip(rows, factors, strict=True)
    )
    state = rig.link.channel.get_state(0)
    received, report = deliver(rig.link.transport, groups, rig.cohort, state, 0)
    power = 10.0 ** (snr_db / 10.0)
    for group, (x, factor) in enumerate(zip(rows, factors, strict=True)):
        error = (received.mean[group]["x"] - x.view(16, devices, -1).mean(1)).numpy()
        law = 0.5 / (factor * power * devices**2)
        yield check_mean_square(law, error**2 / law, error.size, f"group {group}")
    yield check_exact(power, float(report.power.max()), 1e-5, "mean power of a symbol")


@holds()
def test_a_sketch_is_unbiased_and_has_its_variance(bench: Bench) -> Iterator[Check]:
    """Charikar, Chen, Farach-Colton 2002: E of a coordinate's square error is (|x|^2 - x_i^2) / w
    of w buckets; all coordinates are positive, so that a missing sign does not average out."""
    codec = {"name": "count_sketch", "ratio": 0.5}
    rig = bench.build_rig(1, 1, {"codec": codec, "transport": "ideal"})
    drawn = []
    for round in range(512):
        x = rig.draw_symbols(96, round).abs()
        drawn.append((x[0].numpy(), rig.send(x, round)[0][0].numpy()))
    x, found = (np.stack(one) for one in zip(*drawn, strict=True))
    power = (x**2).sum(1)
    yield check_mean(1.0, (found * x).sum(1) / power, "mean")
    yield check_mean(1.0, ((found - x) ** 2).sum(1) / (95 * power / 48), "variance")
