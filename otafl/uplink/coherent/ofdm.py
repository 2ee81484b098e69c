"""Superposition of OFDM samples, with effects that a model of single symbols cannot show.

A group's normalised symbols are sent on n sub-carriers. Each device transmits the samples of their
inverse Fourier transform after a cyclic prefix, through an amplifier. The server's antennas receive
the sum over all devices and paths, each with its delay and carrier offset, and noise. After the
converter and the Fourier transform, each sub-carrier is an estimate of its sum. Without impairments
the result is that of the transport `over_the_air` to rounding: the same h, p, c and eta, and the
same noise. In addition it models:

- the delay of a device (`impairments.timing_offset`), which rotates each sub-carrier differently.
  Paths beyond the prefix carry the previous OFDM symbol, which causes an error floor that no power
  reduces;
- a carrier offset e (`impairments.carrier_offset`), which multiplies a sub-carrier by the Dirichlet
  kernel sin(pi e) / (n sin(pi e / n)), leaks the rest to the others, and rotates the phase from
  symbol to symbol by 2 pi e (1 + prefix / n);
- an amplifier that saturates (`amplifier`) or clips (`impairments.clip_db`) the peaks of many
  sub-carriers, which distorts all sub-carriers of the OFDM symbol;
- the converter (`impairments.adc_bits`) of each antenna, for samples in both quadratures.

`carrier_offset` and `timing_offset` are in OFDM symbols without their prefix. If the channel has
paths, sub-carriers have the response at their own frequency, while devices choose p for the
channel's groups. If `channel.subcarrier_groups` equals `subcarriers`, each sub-carrier has its own
p. The prefix takes time and energy, which are counted.

References
----------
Schmidl, Cox 1997, "Robust Frequency and Timing Synchronization for OFDM", carrier offsets.
Dardari, Tralli, Vaccari 2000, "A Theoretical Characterization of Nonlinear Distortion Effects in
    OFDM Systems".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl import channels
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.uplink import noise
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.bounds import Bounds
from otafl.uplink.coherent.ofdm_grid import Arrivals, Grid, lay_out, missing_samples
from otafl.uplink.coherent.ofdm_samples import LaidOut, Transmitter, to_carriers, windows
from otafl.uplink.coherent.over_the_air import (
    AnalogSettings,
    count_scalars,
    from_first,
    lay_out_reals,
    normalise_reals,
)
from otafl.uplink.delivery import Delivery, Slot
from otafl.uplink.report import collect_coefficients
from otafl.uplink.transmission import Transmission, account, receive, transmit

LOOKED_AT = 32
"""Number of devices whose paths are examined before a run."""


def describe_late_paths(scenario: Any, settings: Any) -> Iterator[str]:
    """Yield a sentence about paths that arrive later than the prefix.

    It examines the first devices' paths in the first round of the first trial. A path of energy E
    that misses J of n samples causes an error of 2 E J / n: its own symbol is missing, and the
    previous one is there. Half of it is in the other quadrature, which counts only if it is used.

    Parameters
    ----------
    scenario : Scenario
        Channel, devices and root seed.
    settings : Ofdm.Settings
        Sub-carriers and prefix.
    """
    devices = min(scenario.devices.count, LOOKED_AT)
    budget, made = channels.build([scenario.channel], devices, Streams([scenario.seed], [0]))
    state = made.get_state(0)
    if state.paths_fn is None:
        return
    paths = state.paths_fn(1)
    energy = paths.a.abs().square().double().sum(2)[0, :, 0]  # [K, L]
    delay = paths.delay_s.expand(-1, len(energy), -1, -1)[0, :, 0] * budget.bandwidth_hz
    missing = missing_samples(delay, settings.prefix).clamp_max(settings.subcarriers)
    total = energy.sum(1).clamp_min(1e-30)
    share = float(((energy * (missing > 0)).sum(1) / total).mean())
    if share == 0:
        return
    halves = 2.0 if settings.quadrature else 1.0
    floor = halves * float(((energy * missing).sum(1) / total).mean()) / settings.subcarriers
    last = float((delay * (energy > 0)).max())
    yield (
        f"transport.prefix: {settings.prefix} samples are shorter than the channel, whose last "
        f"path arrives after {last:.3g}; {share:.2g} of the energy is late, so the aggregation "
        f"error stays above about {floor:.1e} at any power; use {math.ceil(last)}"
    )


def _no_multiple(carriers: int, groups: int) -> str:
    """Write that the number of sub-carriers is not a multiple of the channel's groups."""
    fits = -(-carriers // groups) * groups
    return f"expected a multiple of the channel's {groups} groups, got {carriers}; use {fits}"


class Ofdm(Transport):
    """Over-the-air aggregation of OFDM samples. Study: `scenarios/waveform.yaml`."""

    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state", "_figures")
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True

    class Settings(AnalogSettings):
        idle_without: ClassVar = {"backoff_db": "amplifier", "smoothness": "amplifier"}

        name: Literal["ofdm"] = "ofdm"
        subcarriers: int = Field(64, ge=2, le=8192)
        """n, number of sub-carriers in the bandwidth; a multiple of the channel's groups"""
        prefix: int = Field(16, ge=0)
        """samples of the cyclic prefix, at most `subcarriers`"""
        amplifier: Literal["linear", "rapp"] = "linear"
        """amplifier of every device; rapp saturates smoothly and does not change phases"""
        backoff_db: Decibels = declare_stackable(6.0)
        """saturation power of the amplifier over the power budget, in dB (input back-off)"""
        smoothness: float = declare_stackable(2.0, ge=0.5, le=100)
        """p of the Rapp amplifier; a larger one saturates more abruptly"""
        oversampling: int = Field(1, ge=1, le=16)
        """samples at the amplifier, and of peaks, per transmitted sample; above 1, distortion
        outside the band is filtered out, at 1 it falls into the band"""

        def find_conflicts(self) -> Iterator[str]:
            if self.prefix > self.subcarriers:
                yield (
                    f"prefix: got {self.prefix}, more than the {self.subcarriers} samples of the "
                    f"OFDM symbol that it repeats; use at most {self.subcarriers}"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            groups = getattr(scenario.channel, "subcarrier_groups", None) or 1
            if self.subcarriers % groups:
                text = _no_multiple(self.subcarriers, groups)
                yield make_problem(text, "transport.subcarriers", "channel.subcarrier_groups")
            block = getattr(scenario.channel, "block_symbols", None)
            if block is not None and block % self.subcarriers:
                fits = -(-block // self.subcarriers) * self.subcarriers
                yield make_problem(
                    f"expected whole OFDM symbols of {self.subcarriers} sub-carriers, got {block} "
                    f"channel uses; use {fits}",
                    "channel.block_symbols",
                    "transport.subcarriers",
                )

        def list_notes(self, scenario: Any) -> Iterable[str]:
            return describe_late_paths(scenario, self)

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._policy_state = self.alignment.prepare()
        self._figures = torch.zeros_like(self.budget.bandwidth_hz)[:, None].repeat(1, 3)

    def compute_metrics(self) -> dict[str, Tensor]:
        """Return the means over rounds and devices so far, [S] each; NaN before the first round."""
        peaks, vectors, count = self._figures.unbind(1)
        return {"papr_db": 10.0 * (peaks / count).log10(), "evm": (vectors / count).sqrt()}

    def _lay_out(self, delivery: Delivery) -> tuple[Slot, Grid]:
        """Lay out the slot and the OFDM symbols of its channel uses.

        The energy of the prefixes reduces the energy that devices have left. Raises UserError if
        the channel's groups, such as those of a file, do not divide the sub-carriers.
        """
        settings = self.settings
        slot = lay_out_reals(delivery, settings, self.alignment.csi)
        groups = delivery.channel.h.shape[4]
        if settings.subcarriers % groups:
            raise UserError(f"transport.subcarriers: {_no_multiple(settings.subcarriers, groups)}")
        grid = lay_out(
            slot.cell_stops, groups, settings.subcarriers, settings.prefix, slot.h.device
        )
        limits = delivery.limits
        if limits.energy_budget is None:
            return slot, grid
        limits = replace(limits, energy_budget=limits.energy_budget / grid.repeats)
        if limits.energy_per_symbol is not None:
            lasts = grid.samples / slot.num_uses / grid.repeats
            limits = replace(limits, energy_per_symbol=limits.energy_per_symbol * lasts)
        return replace(slot, bounds=Bounds(limits, slot.num_uses, turns=delivery.turns)), grid

    def transmit(self, delivery: Delivery) -> None:
        """Send all groups in one transmission, because they share OFDM symbols.

        Powers and scalars are those of `over_the_air`, and so is the estimate from the received
        sub-carriers.
        """
        link, settings = self.alignment, self.settings
        (slot, grid), groups = self._lay_out(delivery), list[Transmission]()
        for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
            sent, means, segments = normalise_reals(slot, uses, rows, settings)
            self._policy_state, on_air = transmit(
                slot, sent, segments, link, self._policy_state, means=means
            )
            account(on_air, delivery, count_scalars(on_air, True, link))
            groups.append(on_air)
        lasts = grid.samples / slot.num_uses
        delivery.scale(symbols=lasts, sent=lasts, energy=grid.repeats)
        laid = [LaidOut.create(on_air, grid, delivery.cohort) for on_air in groups]
        # the sub-carriers [S, A, M, n] that the antennas receive
        impairments, hyper, cohort = self.alignment.impairments, self.parts.hyper, delivery.cohort
        budget, trial = slot.budget.flatten()[cohort.flat_index], cohort.trial
        peak = saturation = None
        if impairments.clips:
            peak = (impairments.clip[trial] * budget).sqrt()
        if self.settings.amplifier == "rapp":
            saturation = (db_to_linear(hyper["backoff_db"])[trial] * budget).sqrt()
        transmitter = Transmitter(
            self.settings.oversampling, peak, saturation, hyper["smoothness"][trial]
        )
        arrivals, turning = self._arrivals(laid, slot, grid, delivery)
        chunks = windows(laid, transmitter, arrivals, turning, cohort, grid)
        samples = torch.cat(list(chunks), 2)
        with torch.no_grad():
            figures = cohort.pad_by_trial(transmitter.figures(grid.carriers)).sum(1)
            self._figures = self._figures + figures
        if impairments.settings.adc_bits is not None:
            drawn = noise.draw_sample_noise(self.parts.streams, impairments, slot.round, samples)
            noisy = torch.view_as_real(samples + drawn)
            samples = torch.view_as_complex(impairments.quantise(noisy))
        received = to_carriers(samples, grid.carriers).flatten(2)
        for on_air, group in zip(groups, laid, strict=True):
            total = self._estimate(on_air, received.index_select(2, group.place))
            exact = on_air.sent.sum(on_air.sent.exact[:, None])[:, 0]
            receive(on_air, total, exact, delivery)
            if self.parts.save_link:
                delivery.saved |= collect_coefficients(on_air, self.parts.save_gram)

    def _arrivals(
        self, laid: list[LaidOut], slot: Slot, grid: Grid, delivery: Delivery
    ) -> tuple[Arrivals, Tensor | None]:
        """Return how the rows arrive, and their carrier offsets [N]; None without offsets."""
        impairments, cohort = self.alignment.impairments, delivery.cohort
        devices = slot.budget.shape[1]
        carrier, delay = noise.draw_offsets(impairments, devices, slot.round)
        late = phases = offsets = None
        if impairments.shifts_carrier:
            offsets = carrier.flatten()[cohort.flat_index]
        if impairments.rotates_phase:
            phases = noise.draw_phases(impairments, devices, slot.round)
            phases = phases.flatten()[cohort.flat_index]
        if impairments.delays:
            on = torch.stack([group.on_air(cohort.num_rows) for group in laid]).any(0)
            delay = from_first(cohort, delay.flatten()[cohort.flat_index], on)
            late = delay.double() * grid.carriers
        bandwidth = self.budget.bandwidth_hz
        arrivals = Arrivals(slot.h, delivery.channel, cohort, grid, bandwidth, late, phases)
        return arrivals, offsets

    def _estimate(self, on_air: Transmission, received: Tensor) -> Tensor:
        """Combine a group's symbols [S, A, L], and scale them to the estimate [S, P].

        Noise is added here unless the samples have it.
        """
        segments, sent = on_air.segments, on_air.sent
        combiner = on_air.combiner[:, segments.index_segments(received.device)]  # [S, L, A]
        combined = (combiner.conj().mT * received).sum(1)
        halves = [combined.real, combined.imag][: segments.halves]
        total = torch.cat(halves, 1)[:, : sent.num_coordinates]
        total = total * on_air.expand(on_air.received_unit)
        if self.alignment.impairments.settings.adc_bits is not None:
            return total
        drawn = noise.draw_noise(self.parts.streams, sent, on_air.slot.round)
        return total + drawn * on_air.expand(on_air.noise_std)
