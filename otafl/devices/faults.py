"""Faults: Byzantine devices, crashes, stragglers, deep fades, duplicates and a jammer.

Sign flips and Gaussian noise are the attacks of Blanchard et al. Slow computing comes in bursts, by
the two states of Gilbert. The fault of a device in a round does not depend on the other
participants.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer 2017, "Machine Learning with Adversaries: Byzantine
    Tolerant Gradient Descent".
Gilbert 1960, "Capacity of a Burst-Noise Channel".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.core import settings
from otafl.core.contracts import ChannelState, Cohort, Group, Payload, Tensors, unsqueeze_like
from otafl.core.hyper import build_hyper
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Purpose, Streams, declare_family
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear

FAULT = declare_family("fault", __name__)
CRASH, DUPLICATE = FAULT / "crash", FAULT / "duplicate"
FADE, STRAGGLER = FAULT / "fade", FAULT / "straggler"


class Faults:
    """Faults of S trials.

    A method returns None, or its argument unchanged, for a fault that no trial of the stack has.

    Parameters
    ----------
    sections : Sequence of Faults.Settings
        Sections `faults` of the trials, which differ only in stackable fields.
    streams : Streams
        Random streams of the trials.

    Attributes
    ----------
    downtime_s : ndarray, float64 [S]
        Seconds that a crashed device is away.
    """

    class Settings(settings.Settings):
        """Faults and attacks of a scenario; none by default.

        Attackers change their update before it is encoded and normalised. Their power control and
        power budgets are therefore those of all devices.
        """

        byzantine: int = declare_stackable(0, ge=0)
        """number of Byzantine devices, the first ones"""
        attack: Literal["sign_flip", "scale", "gaussian", "nan"] = "sign_flip"
        """attack of the Byzantine devices. sign_flip: the update times -scale. scale: the update
        times scale. gaussian: Gaussian noise with scale times the norm of the update. nan: values
        that are not numbers. Both factors of a product are changed, so that a sign flip of fedrlr
        multiplies the product by scale squared"""
        scale: float = declare_stackable(1.0, gt=0)
        """strength of the attack"""
        refuse_nonfinite: bool | None = None
        """whether devices do not send an update that is not finite, for any reason; if not given,
        only with attack: nan. An update that is not finite spoils the model, and the trial ends as
        diverged"""
        jammer_db: Decibels | None = declare_stackable(None)
        """mean power of a jammer's white noise over the receiver's noise, in dB; it fades, and the
        server does not know of it; no jammer if not given"""
        crash_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability that a transmitter crashes during the slot, after a uniformly distributed
        share of its symbols"""
        crash_downtime_s: float = declare_stackable(0.0, ge=0)
        """seconds that a crashed device is away after the slot"""
        straggler_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability per round that a burst of slow computing begins, for a device without one"""
        straggler_rounds: float = declare_stackable(5.0, ge=1)
        """mean length of a burst in rounds, geometrically distributed"""
        straggler_factor: float = declare_stackable(4.0, ge=1)
        """factor of the seconds of local work during a burst"""
        fade_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability that a device's uplink is in a deep fade in a round"""
        fade_db: Decibels = declare_stackable(20.0, ge=0)
        """attenuation of a deep fade in dB"""
        duplicate_probability: float = declare_stackable(0.0, ge=0, le=1)
        """probability that a device sends its update twice in a slot"""

        @property
        def has_rejection(self) -> bool:
            """Whether devices do not send an update that is not finite."""
            if self.refuse_nonfinite is None:
                return self.attack == "nan" and self.byzantine > 0
            return self.refuse_nonfinite

        def check(self, scenario: Any) -> Iterable[Problem]:
            count = scenario.devices.count
            if self.byzantine > count:
                text = f"got {self.byzantine}; must be at most devices.count ({count})"
                yield make_problem(text, "faults.byzantine", "devices.count")

    def __init__(self, sections: Sequence[Settings], streams: Streams) -> None:
        first = sections[0]
        self._attack, self._streams = first.attack, streams
        self._hyper = build_hyper(sections, streams)
        self._count, self._scale = self._hyper["byzantine"], self._hyper["scale"]
        self._check_partial_participation = any(one.byzantine for one in sections)
        self._refuses = any(one.has_rejection for one in sections)
        self._crash = any(one.crash_probability for one in sections)
        self._fade = any(one.fade_probability for one in sections)
        self._twice = any(one.duplicate_probability for one in sections)
        self.downtime_s = np.array([one.crash_downtime_s for one in sections])
        self._pairs: tuple[Tensor, Tensor] | None = None
        slow = any(one.straggler_probability for one in sections)
        self._bursts = Bursts(sections, streams) if slow else None

    def tamper(self, payload: Payload, cohort: Cohort, round: int) -> Payload:
        """Return the payload with the updates of the attackers in a cohort.

        Parameters
        ----------
        payload : Payload
            Payload of the cohort, not written to.
        cohort : Cohort
            Its rows.
        round : int
            Number of the round.

        Returns
        -------
        Payload
            Payload to transmit.
        """
        if not self._check_partial_participation:
            return payload
        attacks = cohort.device < self._count[cohort.trial]
        return tuple(
            self._attack_group(FAULT / index, group, attacks, cohort, round)
            for index, group in enumerate(payload)
        )

    def select_finite(self, payload: Payload, cohort: Cohort) -> Tensor | None:
        """Return the mask [N] of the rows with a finite update, which are the only ones sent."""
        if not self._refuses:
            return None
        bad = torch.zeros_like(cohort.device)
        for group in payload:
            for block in group.tensors.values():
                own = (~block.isfinite()).flatten(1).any(1).to(bad.dtype)
                bad = (
                    bad + own if group.row_index is None else bad.index_add(0, group.row_index, own)
                )
        return bad == 0

    def draw_crashes(self, cohort: Cohort, round: int) -> Tensor | None:
        """Draw the share [S, K] of its symbols that each device sends in a slot, else 1."""
        if not self._crash:
            return None
        draw = self._draw_rows(CRASH, cohort, round, (2,))
        crashed = draw[:, 0] < self._hyper["crash_probability"][cohort.trial]
        return _scatter_to_grid(draw[:, 1].where(crashed, 1.0), cohort)

    def draw_copies(self, cohort: Cohort, round: int) -> Tensor | None:
        """Draw the number [S, K] of copies of an update that each device sends, 1 or 2."""
        if not self._twice:
            return None
        draw = self._draw_rows(DUPLICATE, cohort, round, ())
        twice = draw < self._hyper["duplicate_probability"][cohort.trial]
        return _scatter_to_grid(1.0 + twice.to(draw.dtype), cohort)

    def draw_slowdown(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray | None:
        """Draw the factors [N] of the seconds of local work, for pairs trial [N] and device [N]."""
        return None if self._bursts is None else self._bursts.draw_factor(trial, device, round)

    def fade(self, channel: ChannelState, round: int) -> ChannelState:
        """Return the channel of a round with deep fades."""
        if not self._fade:
            return channel
        trials, devices = channel.h.shape[:2]
        if self._pairs is None:
            self._pairs = _list_pairs(trials, devices, channel.h.device)
        draw = self._streams.draw_device_uniform(FADE, round, *self._pairs, ())
        faded = draw.view(trials, devices) < self._hyper["fade_probability"][:, None]
        amplitude = db_to_linear(-self._hyper["fade_db"] / 2.0)  # square root of the power
        factor = amplitude[:, None].where(faded, 1.0)[:, :, None, None, None]
        later = channel.blocks_fn
        return replace(
            channel,
            h=channel.h * factor,
            blocks_fn=None if later is None else lambda blocks: later(blocks) * factor,
        )

    def _draw_rows(
        self, purpose: str, cohort: Cohort, round: int, shape: tuple[int, ...]
    ) -> Tensor:
        """Draw uniform numbers of a shape for each row of a cohort."""
        return self._streams.draw_device_uniform(purpose, round, cohort.trial, cohort.device, shape)

    def _attack_group(
        self, stream: Purpose, group: Group, attacks: Tensor, cohort: Cohort, round: int
    ) -> Group:
        """Return a payload group with the attackers' updates; `attacks` [N] is their mask."""
        rows = attacks.nonzero().squeeze(1)
        at = rows
        if group.row_index is not None:
            at = attacks[group.row_index].nonzero().squeeze(1)
            rows = group.row_index[at]
        own = {name: block[at] for name, block in group.tensors.items()}
        scale = self._scale[cohort.trial[rows]]
        if self._attack == "nan":
            scale = torch.full_like(scale, torch.nan)
        if self._attack == "gaussian":
            noise = {
                name: self._streams.draw_device_normal(
                    stream / name,
                    round,
                    cohort.trial[rows],
                    cohort.device[rows],
                    block.shape[1:],
                )
                for name, block in own.items()
            }
            if (
                mask := group.full_mask
            ) is not None:  # a device does not send coordinates that it does not have
                own = {name: block * mask[name][at] for name, block in own.items()}
                noise = {name: block * mask[name][at] for name, block in noise.items()}
            scale, own = scale * _compute_norm(own) / _compute_norm(noise).clamp_min(1e-30), noise
        elif self._attack == "sign_flip":
            scale = -scale
        return replace(
            group,
            tensors={
                name: block.index_copy(0, at, _scale_rows(own[name], scale))
                for name, block in group.tensors.items()
            },
        )


class Bursts:
    """Bursts of slow computing, a two-state Markov chain for each device.

    A burst begins with probability p in a round, and continues with probability 1 - 1/L in each
    next round. No device is slow before round 0. The state does not depend on the participants of
    earlier rounds.

    Parameters
    ----------
    sections : Sequence of Faults.Settings
        Sections `faults` of S trials, with p and L.
    streams : Streams
        Random streams of the trials.
    """

    def __init__(self, sections: Sequence[Faults.Settings], streams: Streams) -> None:
        def numbers(name: str) -> np.ndarray:
            return np.array([getattr(one, name) for one in sections])[:, None]

        self._begins, self._factor = numbers("straggler_probability"), numbers("straggler_factor")
        self._ends = 1.0 / numbers("straggler_rounds")
        self._streams = streams
        self._start(1)

    def _start(self, devices: int) -> None:
        """Reset the state to that before round 0, for so many devices."""
        trials = len(self._begins)
        self._pairs = _list_pairs(trials, devices, self._streams.device)
        self._slow = np.zeros((trials, devices), dtype=bool)
        self._next = 0

    def draw_factor(self, trial: np.ndarray, device: np.ndarray, round: int) -> np.ndarray:
        """Draw the factors [N] float64 of the seconds of work, for pairs trial [N], device [N]."""
        devices, most = self._slow.shape[1], int(device.max(initial=-1)) + 1
        if round < self._next - 1 or most > devices:  # an earlier round, or further devices
            self._start(devices if most <= devices else max(most, 2 * devices))
        while self._next <= round:
            draw = self._streams.draw_device_uniform(STRAGGLER, self._next, *self._pairs, ())
            u = draw.view(self._slow.shape).cpu().numpy()
            self._slow = np.where(self._slow, u >= self._ends, u < self._begins)
            self._next += 1
        return np.where(self._slow, self._factor, 1.0)[trial, device]


def compute_jammer_power(sections: Sequence[Faults.Settings], streams: Streams) -> Tensor:
    """Compute the jammer's mean power over the receiver's complex noise, [S], else 0."""
    powers = [0.0 if one.jammer_db is None else db_to_linear(one.jammer_db) for one in sections]
    return torch.tensor(powers, dtype=streams.dtype, device=streams.device)


def _list_pairs(trials: int, devices: int, on: torch.device) -> tuple[Tensor, Tensor]:
    """Return trial and device of every pair, [S * K] each."""
    pair = torch.arange(trials * devices, device=on)
    return pair // devices, pair % devices


def _scatter_to_grid(values: Tensor, cohort: Cohort) -> Tensor:
    """Return the values [N] of the rows as [S, K], 1 elsewhere."""
    table = values.new_ones(cohort.num_trials * cohort.num_devices)
    return table.index_copy_(0, cohort.flat_index, values).view(
        cohort.num_trials, cohort.num_devices
    )


def _compute_norm(blocks: Tensors) -> Tensor:
    """Compute the norm [n] of each row over all tensors."""
    norms = [torch.linalg.vector_norm(block.flatten(1), dim=1) for block in blocks.values()]
    return torch.linalg.vector_norm(torch.stack(norms), dim=0)


def _scale_rows(block: Tensor, factor: Tensor) -> Tensor:
    """Multiply rows [n, *shape] by factors [n]."""
    return block * unsqueeze_like(factor, block)
