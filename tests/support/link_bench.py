"""Set up an uplink of a few trials with all its parts at hand, in double precision, for tests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, LinkReport, Payload, Received
from otafl.core.rng import Streams
from otafl.scenario import load_scenario
from otafl.uplink import build
from otafl.uplink.base import deliver
from otafl.uplink.noise import draw_noise

WEIGHTS = [0.1, 0.4, 0.05, 0.2, 0.15, 0.3]

POLICIES = ["full", "ci", "tci", "gbma"]


@dataclass
class Bench:
    """Hold an uplink of S trials over K devices, and what a test needs of its parts."""

    transport: Any
    channel: Any
    streams: Streams
    budget: Tensor
    variance: float

    def deliver(
        self, payload: Payload, cohort: Cohort, round: int = 0
    ) -> tuple[Received, LinkReport]:
        return deliver(self.transport, payload, cohort, self.channel.get_state(round), round)

    def draw_noise(self, num_coordinates: int, round: int = 0, group: int = 0) -> np.ndarray:
        """Draw Re z of z ~ CN(0, 1), [S, P]."""
        sent: Any = SimpleNamespace(index=group, num_coordinates=num_coordinates)
        return draw_noise(self.streams, sent, round).numpy() * math.sqrt(0.5)


def make_bench(
    policy: str = "ci",
    trials: Sequence[int] = (0,),
    devices: int = 6,
    snr_db: float | Sequence[float] = 10.0,
    transport: str = "over_the_air",
    fading: bool = True,
    threshold: float = 0.3,
    variance: float = 0.0,
    policy_options: dict[str, Any] | None = None,
    antennas: int | None = None,
    **options: Any,
) -> Bench:
    """Make an uplink in double precision; `options` are the transport's."""
    power = {"name": policy, **({"threshold": threshold} if policy == "tci" else {})}
    known = {
        "power": power | (policy_options or {}),
        "csi": {"name": "error", "variance": variance},
    }
    tree: dict[str, Any] = {
        "name": "bench",
        "transport": {"name": transport, **options},
        "output": {"save_link": True},
    }
    tree |= {} if transport in ("fsk_majority_vote", "reed", "blind_unsourced") else known
    levels = [snr_db] * len(trials) if isinstance(snr_db, float) else snr_db
    kind = "rayleigh" if fading else "awgn"
    channel = {"name": kind, "antennas": antennas or (2 if transport == "blind_unsourced" else 1)}
    rows = [load_scenario(tree | {"channel": channel | {"snr_db": one}}) for one in levels]
    streams = Streams([1] * len(trials), list(trials), dtype=torch.float64)
    made = build(rows, devices, streams)
    return Bench(made.transport, made.channel, streams, made.budget.budget[:, 0], variance)


def make_cohort(
    counts: Sequence[int] = (6,),
    num_devices: int = 6,
    weight: Sequence[float] | None = None,
    sends: Sequence[bool] | None = None,
) -> Cohort:
    """Take the first devices of each trial; equal weights if none are given, per row."""
    trial = torch.cat([torch.full((count,), s) for s, count in enumerate(counts)]).long()
    device = torch.cat([torch.arange(count) for count in counts])
    zero = torch.zeros_like(device)
    w = torch.ones(len(trial)) if weight is None else torch.tensor(weight)
    on = torch.ones(len(trial), dtype=torch.bool) if sends is None else torch.tensor(sends)
    return Cohort(
        trial, device, w.double(), zero, zero, zero, on, tuple(counts), num_devices, bool(on.all())
    )


def draw_updates(rows: int, num_coordinates: int, seed: int = 0) -> Tensor:
    """Draw [rows, reals] of unequal powers and a common part, so that symbols are correlated."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.3, 2.0, (rows, 1))
    return torch.from_numpy(
        scale * rng.standard_normal((rows, num_coordinates)) + rng.standard_normal(num_coordinates)
    )


@dataclass
class Given:
    """Give a channel's h [S, K, A, B, F] for every round; it changes every `block_symbols` channel
    uses."""

    h: Tensor
    gain: Tensor
    block_symbols: int | None = None

    def get_state(self, round: int) -> ChannelState:
        first = self.h[:, :, :, :1] if self.block_symbols else self.h
        return ChannelState(first, self.gain, self.block_symbols, lambda b: self.h[:, :, :, :b])


def make_given(
    link: Bench,
    antennas: int = 1,
    blocks: int = 1,
    groups: int = 1,
    block_symbols: int | None = None,
) -> Bench:
    """Put the same uplink over a random channel of these sizes, with unequal large-scale gains."""
    trials, devices = len(link.budget), link.transport.budget.budget.shape[1]
    rng = np.random.default_rng(5)
    shape = (trials, devices, antennas, blocks, groups)
    h = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / math.sqrt(2)
    gain = torch.from_numpy(rng.uniform(0.5, 2.0, (trials, devices)))
    return dataclasses.replace(link, channel=Given(torch.from_numpy(h), gain, block_symbols))


def add_setup(link: Bench, **parts: Any) -> Bench:
    """Replace some of an uplink's parts, which may be of its alignment."""
    transport = link.transport
    alignment = transport.parts.alignment
    fields = {field.name for field in dataclasses.fields(alignment)}
    own = {name: parts.pop(name) for name in fields & set(parts)}
    parts["alignment"] = dataclasses.replace(alignment, **own)
    made = type(transport)(transport.settings, dataclasses.replace(transport.parts, **parts))
    return dataclasses.replace(link, transport=made)
