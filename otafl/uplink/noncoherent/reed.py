"""Sum of energies instead of amplitudes, so that no device needs to know a channel (REED).

A coordinate x has two channel uses. A device sends the amplitude sqrt(a max(x, 0)) on the first and
sqrt(a max(-x, 0)) on the second, with random phases. The server adds the energies e+ and e- over
its A antennas. Over fading of mean power one, an unbiased estimate of the sum of all x is

    (e+ - e-) / (a A).

With U+ = sum max(x, 0) and U- likewise, its variance under Rayleigh fading is

    [(a U+ + sigma^2)^2 + (a U- + sigma^2)^2] / (a^2 A).

The scheme is limited by self-interference, which more antennas reduce and more power does not.

All devices share the scale a = 2 P / max_k mean |x_k|, with which every device is within its budget
P on the mean power of a channel use. The devices' mean |x_k| are side information, one real number
each. Devices use no channel estimates, only long-term mean gains, and phase impairments have no
effect.

References
----------
Chen, Bozorgasl 2026, "Resource-Element Energy Difference for Noncoherent Over-the-Air Federated
    Learning", arXiv 2605.07263.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.core.problems import Problem
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, Slot
from otafl.uplink.groups import divide_by_weights
from otafl.uplink.noncoherent import pairs
from otafl.uplink.noncoherent.energies import Energies
from otafl.uplink.signal import Signal, Uses
from otafl.uplink.transmission import Transmission


class Reed(Transport):
    """Non-coherent aggregation of energies. Study: `studies/published/reed.yaml`."""

    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    is_unbiased: ClassVar[bool] = False

    class Settings(Transport.Settings):
        name: Literal["reed"] = "reed"
        calibrate: bool = Field(
            True,
            description="whether a device divides its energy by its own mean channel gain, so that "
            "all have equal influence and the weakest channel sets the scale; if false, gains "
            "weight the devices and the server divides by the mean gain",
        )

        def check(self, scenario: Any) -> Iterable[Problem]:
            return pairs.find_problems(scenario)

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._energies = Energies(parts.streams, parts.alignment.impairments)

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other, and give the server its estimates."""
        with torch.no_grad():
            slot = pairs.lay_out_pairs(delivery)
            for uses, sent in zip(slot.uses, delivery.uplink, strict=True):
                on_air = self._transmit(delivery, slot, uses, sent)
                received = self._receive(on_air)
                pairs.hand_over(on_air, *received, delivery, self.parts, num_scalars=1)

    def _transmit(self, delivery: Delivery, slot: Slot, uses: Uses, sent: Signal) -> Transmission:
        """Put a group on air at the common scale.

        Its eta is the mean received energy of a unit magnitude, over fading and devices.
        """

        def sum_magnitudes(rows: Signal, _: Tensor | None) -> Tensor:
            return torch.linalg.vector_norm(rows.x, 1, dim=1)

        copies, scale = delivery.limits.num_copies, sent.scale
        if copies is not None:
            scale = scale * sent.take_rows(copies)
        divisor = slot.gain if self.settings.calibrate else torch.ones_like(slot.gain)
        total = sum_magnitudes(sent, None) * scale
        cost = sent.grid(total) / (2.0 * sent.num_coordinates) / divisor
        eligible_mask = pairs.select_able(slot, sent)
        a = find_common_scale(slot, eligible_mask, cost)
        p = torch.where(eligible_mask, (a / divisor).sqrt(), 0.0)
        on_air = pairs.transmit(slot, uses, sent, scale, p, total, sum_magnitudes)
        eta = a
        if not self.settings.calibrate:
            weight = sent.grid(sent.exact) * on_air.scalars.active_mask[:, 0]
            mean_gain = (weight * slot.gain).sum(1) / weight.sum(1).clamp_min(pairs.TINY)
            eta = a * mean_gain[:, None]
        scalars = replace(on_air.scalars, eta=eta.expand_as(on_air.scalars.eta))
        return replace(on_air, scalars=scalars)

    def _receive(self, on_air: Transmission) -> tuple[Tensor, Tensor, Tensor | Tensors]:
        """Return the estimate and the error-free aggregate, [S, P], and the delivered weight."""
        sent, weight = on_air.sent, on_air.weight[:, 0]
        estimate, exact = sent.empty_sum(), sent.empty_sum()
        for columns, energy, sums in self._energies.receive_symbols(on_air, sent.exact):
            torch.sub(energy[:, 0], energy[:, 1], out=estimate[:, columns])
            exact[:, columns] = sums
        unit = 1.0 / (on_air.slot.h.shape[2] * on_air.scalars.eta[:, 0].clamp_min(pairs.TINY))
        if sent.linear:
            unit = unit / sent.cohort.rows_per_trial.clamp_min(1.0)
            if sent.mask is None:
                unit = unit / weight.clamp_min(pairs.TINY)
        estimate *= torch.where(weight > 0, unit, 0.0)[:, None]
        if sent.mask is None:
            return estimate, exact, weight
        return divide_by_weights(sent, estimate, exact, pairs.weigh_known(on_air))


def find_common_scale(slot: Slot, eligible_mask: Tensor, cost: Tensor) -> Tensor:
    """Find the largest common scale of all energies within the budget of each device.

    Parameters
    ----------
    slot : Slot
        Power budgets P_k.
    eligible_mask : Tensor, bool [S, K]
        Transmitters.
    cost : Tensor, float [S, K]
        Mean energy of a channel use at scale one, u_k.

    Returns
    -------
    Tensor, float64 [S, 1]
        min_k P_k / u_k; 1 if no device transmits.
    """
    most = (eligible_mask * cost.double() / slot.budget).amax(1, keepdim=True)
    return torch.where(most > 0, 1.0 / most, 1.0)
