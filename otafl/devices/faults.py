"""Faults to inject: devices that lie, crash, slow down, fade or send twice, and a jammer.

Sign flips and normal noise are the attacks of Blanchard, El Mhamdi, Guerraoui, Stainer 2017,
"Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent". Bursts of slowness are the
two states of Gilbert 1960, "Capacity of a Burst-Noise Channel". What a draw says of a device and a
round does not depend on who else takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Blocks, ChannelState, Cohort, Group, Hyper, Payload
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.devices.config_faults import FaultsConfig


class Faults:
    """The faults of S trials. downtime_s: [S] seconds that a crashed device is away.

    What asks for a fault that no trial of the stack has is answered with None, or with what was
    given.
    """

    def __init__(self, configs: Sequence[FaultsConfig], streams: Streams, hyper: Hyper) -> None:
        """configs: of each trial; they differ in their stackable fields alone, which hyper has as
        [S]."""
        config = configs[0]
        self._attack, self._hyper, self._streams = config.attack, hyper, streams
        self._count, self._scale = hyper["byzantine"], hyper["scale"]
        self._some = any(one.byzantine for one in configs)
        refuses = config.attack == "nan" and self._some
        self._refuses = refuses if config.refuse_nonfinite is None else config.refuse_nonfinite
        self._crash = any(one.crash_probability for one in configs)
        self._fade = any(one.fade_probability for one in configs)
        self._twice = any(one.duplicate_probability for one in configs)
        self.downtime_s = np.array([one.crash_downtime_s for one in configs])
        self._pairs: tuple[Tensor, Tensor] | None = None
        slow = any(one.straggler_probability for one in configs)
        self._bursts = Bursts(configs, streams) if slow else None

    def tamper(self, payload: Payload, cohort: Cohort, round: int) -> Payload:
        """The payload as the attackers among the cohort have it sent; what was given is not
        written to."""
        if not self._some:
            return payload
        attacks = cohort.device < self._count[cohort.trial]
        return tuple(
            self._group(str(index), group, attacks, cohort, round)
            for index, group in enumerate(payload)
        )

    def refuse(self, payload: Payload, cohort: Cohort) -> Tensor | None:
        """[N] bool: rows whose update is finite, which alone are sent."""
        if not self._refuses:
            return None
        bad = torch.zeros_like(cohort.device)
        for group in payload:
            for block in group.blocks.values():
                own = (~block.isfinite()).flatten(1).any(1).to(bad.dtype)
                bad = bad + own if group.rows is None else bad.index_add(0, group.rows, own)
        return bad == 0

    def crashes(self, cohort: Cohort, round: int) -> Tensor | None:
        """[S, K]: share of its symbols that each device sends in this slot, 1 without a crash."""
        if not self._crash:
            return None
        draw = self._rows("fault/crash", cohort, round, (2,))
        crashed = draw[:, 0] < self._hyper["crash_probability"][cohort.trial]
        return _table(draw[:, 1].where(crashed, 1.0), cohort)

    def copies(self, cohort: Cohort, round: int) -> Tensor | None:
        """[S, K]: times that each device sends its update in this slot, 1 or 2."""
        if not self._twice:
            return None
        draw = self._rows("fault/duplicate", cohort, round, ())
        twice = draw < self._hyper["duplicate_probability"][cohort.trial]
        return _table(1.0 + twice.to(draw.dtype), cohort)

    def slowdown(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray | None:
        """[N]: what the local work of the pairs trial [N], device [N] takes longer by."""
        return None if self._bursts is None else self._bursts.factor(trial, device, round)

    def fade(self, channel: ChannelState, round: int) -> ChannelState:
        """The channel of a round with its deep fades."""
        if not self._fade:
            return channel
        trials, devices = channel.h.shape[:2]
        if self._pairs is None:
            self._pairs = _pairs(trials, devices, channel.h.device)
        draw = self._streams.device_uniform("fault/fade", round, *self._pairs, ())
        faded = draw.view(trials, devices) < self._hyper["fade_probability"][:, None]
        amplitude = 10.0 ** (-self._hyper["fade_db"] / 20.0)
        factor = amplitude[:, None].where(faded, 1.0)[:, :, None, None, None]
        later = channel.later
        return replace(
            channel,
            h=channel.h * factor,
            later=None if later is None else lambda blocks: later(blocks) * factor,
        )

    def _rows(self, purpose: str, cohort: Cohort, round: int, shape: tuple[int, ...]) -> Tensor:
        return self._streams.device_uniform(purpose, round, cohort.trial, cohort.device, shape)

    def _group(
        self, stream: str, group: Group, attacks: Tensor, cohort: Cohort, round: int
    ) -> Group:
        rows = attacks.nonzero().squeeze(1)
        at = rows
        if group.rows is not None:
            at = attacks[group.rows].nonzero().squeeze(1)
            rows = group.rows[at]
        own = {name: block[at] for name, block in group.blocks.items()}
        scale = self._scale[cohort.trial[rows]]
        if self._attack == "nan":
            scale = torch.full_like(scale, torch.nan)
        if self._attack == "gaussian":
            noise = {
                name: self._streams.device_normal(
                    f"fault/{stream}/{name}",
                    round,
                    cohort.trial[rows],
                    cohort.device[rows],
                    block.shape[1:],
                )
                for name, block in own.items()
            }
            if (mask := group.full_mask) is not None:  # what a device does not know is not sent
                own = {name: block * mask[name][at] for name, block in own.items()}
                noise = {name: block * mask[name][at] for name, block in noise.items()}
            scale, own = scale * _norm(own) / _norm(noise).clamp_min(1e-30), noise
        elif self._attack == "sign_flip":
            scale = -scale
        return replace(
            group,
            blocks={
                name: block.index_copy(0, at, _times(own[name], scale))
                for name, block in group.blocks.items()
            },
        )


class Bursts:
    """When each device is slow: a burst begins with probability p in a round, and goes on with
    probability 1 - 1/L from one round to the next. Nobody is slow before round 0. The state is that
    of the rounds so far, whoever took part in them."""

    def __init__(self, configs: Sequence[FaultsConfig], streams: Streams) -> None:
        def column(name: str) -> np.ndarray:
            return np.array([getattr(one, name) for one in configs])[:, None]

        self._begins, self._factor = column("straggler_probability"), column("straggler_factor")
        self._ends = 1.0 / column("straggler_rounds")
        self._streams = streams
        self._start(1)

    def _start(self, devices: int) -> None:
        """Before round 0, with room for so many devices."""
        trials = len(self._begins)
        self._pairs = _pairs(trials, devices, self._streams.device)
        self._slow = np.zeros((trials, devices), dtype=bool)
        self._next = 0

    def factor(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray:
        """[N] float64."""
        devices, most = self._slow.shape[1], int(device.max(initial=-1)) + 1
        if round < self._next - 1 or most > devices:  # asked of the past, or of others too
            self._start(devices if most <= devices else max(most, 2 * devices))
        while self._next <= round:
            draw = self._streams.device_uniform("fault/straggler", self._next, *self._pairs, ())
            u = draw.view(self._slow.shape).cpu().numpy()
            self._slow = np.where(self._slow, u >= self._ends, u < self._begins)
            self._next += 1
        return np.where(self._slow, self._factor, 1.0)[trial, device]


def jammer_power(configs: Sequence[FaultsConfig], streams: Streams) -> Tensor:
    """[S]: the jammer's mean power over the receiver's complex noise, 0 without one."""
    powers = [0.0 if one.jammer_db is None else db_to_linear(one.jammer_db) for one in configs]
    return torch.tensor(powers, dtype=streams.dtype, device=streams.device)


def _pairs(trials: int, devices: int, on: torch.device) -> tuple[Tensor, Tensor]:
    """Every trial and device, [S * K] each."""
    pair = torch.arange(trials * devices, device=on)
    return pair // devices, pair % devices


def _table(values: Tensor, cohort: Cohort) -> Tensor:
    """Values [N] of the rows at their place in [S, K], 1 elsewhere."""
    table = values.new_ones(cohort.trials * cohort.population)
    return table.index_copy_(0, cohort.cell, values).view(cohort.trials, cohort.population)


def _norm(blocks: Blocks) -> Tensor:
    """[n]: of rows, all blocks together."""
    norms = [torch.linalg.vector_norm(block.flatten(1), dim=1) for block in blocks.values()]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def _times(block: Tensor, factor: Tensor) -> Tensor:
    """Rows [n, *shape] times [n]."""
    return block * factor.view(-1, *[1] * (block.dim() - 1))
