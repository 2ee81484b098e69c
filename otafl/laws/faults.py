"""Laws of injected faults: their frequency, their devices and their duration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.devices.faults import Faults
from otafl.laws.bench import Bench
from otafl.laws.checks import (
    Check,
    check_distribution,
    check_exact,
    check_normal,
    check_share,
    counts,
    state_law,
)

TRIALS, DEVICES, ROUNDS = 2, 50, 200

PAIRS = "devices, rounds and trials"
CHANCES = (0.1, 0.4)
"""Probabilities of a fault, in two trials."""


def _faults(bench: Bench, **fields: tuple[float, ...]) -> Faults:
    """Return the faults of two trials, with the values of their fields."""
    sections = [
        Faults.Settings.model_validate({name: values[s] for name, values in fields.items()})
        for s in range(TRIALS)
    ]
    return Faults(sections, Streams([3] * TRIALS, range(TRIALS), bench.torch_device, torch.float64))


def _make_full_cohort(bench: Bench) -> Cohort:
    """Build a cohort of all devices."""
    pair = torch.arange(TRIALS * DEVICES, device=bench.torch_device)
    weight = torch.ones(len(pair), dtype=torch.float64, device=bench.torch_device)
    return Cohort.create(pair // DEVICES, pair % DEVICES, weight, (DEVICES,) * TRIALS, DEVICES)


def _shares(hit: np.ndarray, chances: tuple[float, float]) -> Iterator[Check]:
    """Check how often devices have a fault [R, S, K], and how often two neighbours do.

    For independent draws the latter is the product.
    """
    first, second = chances
    yield check_share(first, int(hit[:, 0].sum()), hit[:, 0].size, "trial 0")
    yield check_share(second, int(hit[:, 1].sum()), hit[:, 1].size, "trial 1")
    pairs = {
        "devices": (hit[:, 0, :-1] & hit[:, 0, 1:], first**2),
        "rounds": (hit[:-1, 1] & hit[1:, 1], second**2),
        "trials": (hit[:, 0] & hit[:, 1], first * second),
    }
    for case, (both, chance) in pairs.items():
        yield check_share(chance, int(both.sum()), both.size, f"two {case}")


def _draw_rounds(bench: Bench, draw: Callable[[Cohort, int], Tensor | None]) -> np.ndarray:
    """Draw a fault of all devices in many rounds, [R, S, K]."""
    cohort = _make_full_cohort(bench)
    rounds = [draw(cohort, round) for round in range(bench.scale_size(4 * ROUNDS))]
    return torch.stack([one for one in rounds if one is not None]).cpu().numpy()


@state_law("faults: crashes", f"binomial over {PAIRS}; a uniform share of the symbols")
def _crashes(bench: Bench) -> Iterator[Check]:
    part = _draw_rounds(bench, _faults(bench, crash_probability=CHANCES).draw_crashes)
    yield from _shares(part != 1.0, CHANCES)
    yield check_distribution(part[part != 1.0], stats.uniform.cdf, "share of the symbols sent")


@state_law("faults: copies", f"binomial over {PAIRS}; once or twice")
def _copies(bench: Bench) -> Iterator[Check]:
    times = _draw_rounds(bench, _faults(bench, duplicate_probability=CHANCES).draw_copies)
    yield from _shares(times == 2.0, CHANCES)
    yield check_exact(
        0.0, float((~np.isin(times, (1.0, 2.0))).sum()), 0.0, "neither once nor twice"
    )


BURSTS: dict[str, tuple[float, float]] = {
    "straggler_probability": (0.02, 0.1),
    "straggler_rounds": (8.0, 3.0),
    "straggler_factor": (4.0, 2.5),
}
SETTLED = 100
"""Rounds after which nearly every earlier burst has ended."""


@state_law("faults: bursts of slowness", "Gilbert 1960; geometric lengths, p L / (1 + p L) slow")
def _bursts(bench: Bench) -> Iterator[Check]:
    """Compare the lengths of bursts, their starts, and the share of slow devices in the long run.

    Starts in the first round are compared as well.
    """
    faults, rounds = _faults(bench, **BURSTS), SETTLED + bench.scale_size(1200)
    trial, device = np.divmod(np.arange(TRIALS * DEVICES), DEVICES)
    drawn = [faults.draw_slowdown(trial, device, round) for round in range(rounds)]
    factor = np.stack([one for one in drawn if one is not None]).reshape(rounds, TRIALS, DEVICES)
    for s in range(TRIALS):
        p, length, times = (values[s] for values in BURSTS.values())
        case = f"trial {s}"
        other = float((~np.isin(factor[:, s], (1.0, times))).sum())
        yield check_exact(0.0, other, 0.0, f"{case}, other factors")
        slow = factor[:, s] > 1.0
        begins = slow & ~np.vstack([np.zeros((1, DEVICES), bool), slow[:-1]])
        free = int((~slow[:-1]).sum())
        yield check_share(p, int(begins[1:].sum()), free, f"{case}, begin")
        yield check_share(p, int(begins[0].sum()), DEVICES, f"{case}, begin in the first round")
        yield from _lengths(slow, begins[:-SETTLED], length, case)
        part = slow[SETTLED:]
        law = p * length / (1.0 + p * length)
        # the mean over T rounds of a two-state chain of correlation r = 1 - p - 1 / L
        r = 1.0 - p - 1.0 / length
        spread = np.sqrt(law * (1.0 - law) / part.size * (1.0 + r) / (1.0 - r))
        yield check_normal(law, float(part.mean()), float(spread), f"{case}, in the long run")


def _lengths(slow: np.ndarray, begins: np.ndarray, length: float, case: str) -> Iterator[Check]:
    """Count bursts of 1, 2, 3, 4 to 6, 7 to 12 and more rounds."""
    edges = np.array([1, 2, 3, 4, 7, 13, 10**6])
    tail = (1.0 - 1.0 / length) ** (edges - 1.0)
    lengths = np.array([np.argmin(slow[t:, k]) for t, k in np.argwhere(begins)])
    law = len(lengths) * -np.diff(tail) / (tail[0] - tail[-1])
    yield counts(law, np.histogram(lengths, edges)[0], f"{case}, lengths")


@state_law("faults: deep fades", f"binomial over {PAIRS}; decibels of power")
def _fades(bench: Bench) -> Iterator[Check]:
    """Compare the power of a channel with deep fades with the power before, or 10 or 30 dB less.

    The fade is equal in all three blocks, two of which come later, and in all antennas and groups
    of sub-carriers of a device.
    """
    chances, levels_db = (0.2, 0.5), (10.0, 30.0)
    faults = _faults(bench, fade_probability=chances, fade_db=levels_db)
    streams = Streams([0] * TRIALS, range(TRIALS), bench.torch_device, torch.float64)
    real, imaginary = (streams.draw_normal("h", part, (DEVICES, 2, 3, 4)) for part in (0, 1))
    h = torch.complex(real, imaginary)
    channel = ChannelState(h[..., :1, :], real[:, :, 0, 0, 0], 100, lambda n: h[..., :n, :])
    level = real.new_tensor([db_to_linear(-db) for db in levels_db])[:, None]
    hits, most = [], 0.0
    for round in range(bench.scale_size(2 * ROUNDS)):
        power = (faults.fade(channel, round).extend_to(250) / h).abs().square().flatten(2)
        weak = power[..., 0] < 0.5
        off = (power / level.where(weak, 1.0)[..., None] - 1.0).abs().max()
        most = max(most, float(off))
        hits.append(weak)
    yield check_exact(0.0, most, 1e-9, "off the level")
    yield from _shares(torch.stack(hits).cpu().numpy(), chances)
