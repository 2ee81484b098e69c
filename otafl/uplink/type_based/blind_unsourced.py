r"""Counts of codewords from received covariances, without channel knowledge at any device.

Devices send the common sequences of their codewords as in `unsourced`, but do not invert channels.
A device divides by the root of its long-term mean gain only. With H [M, A] the sums of the channels
of the devices that have each codeword, the A antennas of the server receive

.. math::

    Y = A H + W, \quad E[Y Y^H] / A = A \, diag(n) A^H + N_0 I,

since independent channels of mean power one add in power. With more antennas, the mean over them is
closer to this expectation (channel hardening). The correlation with sequence j has the energy

.. math::

    b_j = \| a_j^H Y \|^2 / A - N_0, \quad
    E[b_j] = \sum_i |a_j^H a_i|^2 n_i, \quad
    Var[b_j] = (E[b_j] + N_0)^2 / A

under Rayleigh fading, and the server fits non-negative counts with sum K by least squares,

.. math::

    \min_n \| Y Y^H / A - N_0 I - A \, diag(n) A^H \|_F^2,

whose gradient is |A^H A|^2 n - b. Once the noise is small, more antennas reduce the error, and more
power does not. Up to L^2 codewords can be told apart.

References
----------
Qiao, Wang, Jiang, Liu, Xing, Wu, Gao 2026, "MD-AirComp+: Adaptive Quantization for Blind Massive
    Digital Over-the-Air Computation", arXiv 2602.18332.
Fengler, Haghighatshoar, Jung, Caire 2021, "Non-Bayesian Activity Detection, Large-Scale Fading
    Coefficient Estimation, and Unsourced Random Access With a Massive MIMO Receiver",
    arXiv 1910.11266.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.problems import Problem, make_problem
from otafl.uplink import noise
from otafl.uplink.delivery import Delivery, lay_out
from otafl.uplink.noncoherent import pairs
from otafl.uplink.noncoherent.energy_detection import find_common_scale
from otafl.uplink.signal import Signal
from otafl.uplink.transmission import Transmission
from otafl.uplink.type_based.unsourced import (
    CodewordCounts,
    CodewordSettings,
    count_senders,
    make_unit_blocks,
)

SAMPLES_AT_ONCE = 1 << 16
"""Received samples of a trial at a time. Draws depend on it."""


class BlindUnsourced(CodewordCounts):
    """Unsourced access without channel knowledge, for many antennas (blind MD-AirComp+)."""

    class Settings(CodewordSettings):
        name: Literal["blind_unsourced"] = "blind_unsourced"
        iterations: int = Field(50, ge=1, le=1000)
        """steps of the server's estimate of the counts"""

        example: ClassVar = {"channel.antennas": 64}

        def check(self, scenario: Any) -> Iterable[Problem]:
            yield from pairs.find_problems(scenario)
            if getattr(scenario.channel, "antennas", 2) < 2:
                text = (
                    "1 does not go with transport: 'blind_unsourced', which averages the energies "
                    "of many antennas; set channel.antennas, for example to 64"
                )
                yield make_problem(text, "channel.antennas", "transport")

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other, at the common scale of all energies.

        A device sends its sequences with the amplitude sqrt(a / gain), where the weakest device
        sets a.
        """
        length, copies = self.settings.length, delivery.limits.num_copies
        with torch.no_grad():
            lengths = self.count_blocks(delivery)
            limits = replace(delivery.limits, num_copies=None)
            slot = lay_out(delivery, lengths, None, limits, length)
            energy = 1.0 / slot.gain if copies is None else copies / slot.gain
            for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
                sent = make_unit_blocks(rows, len(uses))
                able = pairs.select_able(slot, sent)
                a = find_common_scale(slot, able, energy / length)
                p = torch.where(able, (a * energy).sqrt(), 0.0)
                one = torch.ones_like(rows.weight)
                total = one * len(uses)
                on_air = pairs.transmit(slot, uses, sent, one, p, total, lambda x, _: x.x.sum(1))
                scalars = replace(on_air.scalars, eta=a.expand_as(on_air.scalars.eta))
                on_air = replace(on_air, scalars=scalars)
                self.hand_over(on_air, rows, self._receive(on_air, rows), delivery)
                if self.parts.save_link:
                    delivery.saved[f"c/{rows.index}"] = on_air.gain.abs().square()

    def _receive(self, on_air: Transmission, rows: Signal) -> Tensor:
        """Receive the energies, and return the sum of the rows that they say, [S, P]."""
        settings, cohort, signal = self.settings, rows.cohort, on_air.signal
        streams, impairments = self.parts.streams, self.alignment.impairments
        length, round, antennas = settings.length, on_air.slot.round, on_air.slot.h.shape[2]
        sequences = torch.complex(*self.sequences.tensor_split(2))
        gram = (sequences.mH @ sequences).abs().square()
        h = signal.take_rows(on_air.slot.h)[..., list(on_air.segments.cells)]
        root = on_air.scalars.p[:, 0].real / on_air.scalars.eta[:, :1].sqrt()
        h = (h * signal.take_rows(root)[:, None, None]).to(sequences.dtype)
        segment = on_air.segments.index_segments(h.device)
        unit = on_air.scalars.eta[:, :1].to(signal.x.dtype)
        floor = 2.0 * impairments.compute_known_noise(round)[:, None, None] / unit[..., None]
        senders = count_senders(on_air)

        def count(words: Tensor, at: slice, number: int) -> Tensor:
            ways = h[..., segment[at]] * signal.x[:, None, at]  # [n, A, C]
            symbols = cohort.pad_by_trial(sequences.mT[words])  # [S, K, C, L]
            y = torch.einsum("skcl,skac->sacl", symbols, cohort.pad_by_trial(ways))
            drawn = noise.draw_sample_noise(streams, impairments, round, y, (rows.index, number))
            y = y + drawn / unit[..., None, None].sqrt()
            energy = (y @ sequences.conj()).abs().square().mean(1) - floor  # [S, C, M]
            return fit_counts(energy, gram, senders[:, at], settings.iterations)

        return self.decode(on_air, rows, count, max(1, SAMPLES_AT_ONCE // (antennas * length)))


def fit_counts(energy: Tensor, gram: Tensor, senders: Tensor, iterations: int) -> Tensor:
    """Fit non-negative counts of a known sum to the energies of correlations.

    Accelerated projected gradients solve the least squares of the covariance.

    Parameters
    ----------
    energy : Tensor, float [S, C, M]
        Energies b of the correlations with the sequences, less that of the noise.
    gram : Tensor, float [M, M]
        Squared magnitudes of the sequences' inner products, |A^H A|^2.
    senders : Tensor, float [S, C]
        Number K of devices on air.
    iterations : int
        Number of steps.

    Returns
    -------
    Tensor, float [S, C, M]
        The counts.

    References
    ----------
    Beck, Teboulle 2009, "A Fast Iterative Shrinkage-Thresholding Algorithm for Linear Inverse
        Problems".
    """
    step = 1.0 / torch.linalg.matrix_norm(gram, 2)
    n = senders[..., None].expand_as(energy) / energy.shape[2]
    ahead, t = n, 1.0
    for _ in range(iterations):
        new = project_to_sum(ahead - step * (ahead @ gram - energy), senders[..., None])
        t, last = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5), t
        ahead = new + (last - 1.0) / t * (new - n)
        n = new
    return n


def project_to_sum(y: Tensor, total: Tensor) -> Tensor:
    """Return the nearest non-negative numbers to y [..., M] whose sum is `total` [..., 1]."""
    ordered = y.sort(-1, descending=True).values
    ranks = torch.arange(1, y.shape[-1] + 1, dtype=y.dtype, device=y.device)
    shift = (ordered.cumsum(-1) - total) / ranks
    kept = (ordered > shift).sum(-1, keepdim=True).clamp_min(1)
    return (y - shift.gather(-1, kept - 1)).clamp_min(0.0)
