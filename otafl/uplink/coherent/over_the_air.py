"""Superposition of all devices' analogue signals on the same symbols, with noise.

A symbol is a channel use. The received sum is computed as one weighted reduction of real numbers
(`superpose`), without a complex array of the payload's size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import LinkBudget, Payload, Tensors
from otafl.core.rng import Streams
from otafl.privacy.checks import refuse_ideal
from otafl.privacy.mechanism import Privacy
from otafl.uplink.base import Counts, Transport
from otafl.uplink.coherent.analog import (
    AnalogSettings,
    count_scalars,
    lay_out_reals,
    normalise_reals,
)
from otafl.uplink.delivery import Delivery
from otafl.uplink.impairments.distorted import superpose_distorted
from otafl.uplink.intercell import InterCellInterference
from otafl.uplink.on_air import OnAir
from otafl.uplink.power import Alignment
from otafl.uplink.receive import receive
from otafl.uplink.report import NOT_SAVED, Saves, account, coefficients
from otafl.uplink.segments import compute_energies
from otafl.uplink.superpose import draw_noise, superpose
from otafl.uplink.transmit import transmit


class OverTheAir(Transport):
    """Coherent over-the-air aggregation. Example: `scenarios/quickstart.yaml`."""

    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True
    accounts_privacy: ClassVar[bool] = True
    supports_power_factors: ClassVar[bool] = True
    supports_intercell: ClassVar[bool] = True
    supports_heavy_tails: ClassVar[bool] = True

    class Settings(AnalogSettings):
        name: Literal["over_the_air"] = "over_the_air"

    def __init__(
        self,
        settings: Settings,
        *,
        budget: LinkBudget,
        alignment: Alignment,
        streams: Streams,
        privacy: Privacy | None = None,
        neighbours: InterCellInterference | None = None,
        saves: Saves = NOT_SAVED,
    ) -> None:
        self.settings, self.budget, self.alignment = settings, budget, alignment
        self.streams, self.privacy = streams, privacy
        self.neighbours, self.saves = neighbours, saves
        self._policy_state = alignment.prepare()

    @property
    def uses_empty_slots(self) -> bool:
        return self.privacy is not None and self.privacy.uses_sampling

    def compute_metrics(self) -> dict[str, Tensor]:
        return {} if self.privacy is None else self.privacy.compute_metrics()

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's state, and that of the privacy accounting."""
        if self.privacy is None:
            return super().state_dict()
        return {**super().state_dict(), "privacy": self.privacy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.privacy is not None:
            self.privacy.load_state_dict(state["privacy"])

    def check_payload(self, payload: Payload) -> None:
        if self.privacy is not None:
            refuse_ideal(payload)

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other.

        Rows x_k [n, P] become normalised symbols. The policy sets p_k and eta for the scalar
        channels f^H h_k of their segments, the signals add up, and the server gets the estimate [S,
        P].
        """
        link, settings, privacy = self.alignment, self.settings, self.privacy
        slot = lay_out_reals(delivery, settings, link.csi)
        if privacy is not None:
            sends = torch.stack([rows.transmitter_mask for rows in delivery.uplink]).any(0)
            slot = privacy.limit_power(slot, sends, delivery.limits)
        for uses, rows in zip(slot.uses, delivery.uplink, strict=True):
            clipped = rows if privacy is None else privacy.clip_rows(rows)
            sent, normalised = normalise_reals(slot, uses, clipped, settings)
            if privacy is not None:
                normalised = privacy.scale(sent, normalised)
            self._policy_state, on_air = transmit(slot, sent, normalised, link, self._policy_state)
            if privacy is not None:
                privacy.spend(on_air)
            # with privacy, powers follow from the common clipping norm
            num_side_scalars = count_scalars(
                normalised, privacy is None, link.policy.needs_variation
            )
            account(on_air, delivery, num_side_scalars)
            unwanted = self._draw_interference(on_air)
            total, exact = self._superpose(on_air, unwanted)
            receive(on_air, total, exact, delivery)
            if self.saves.link:
                delivery.tally.saved |= self._list_saved(on_air, unwanted)

    def _superpose(self, on_air: OnAir, unwanted: Tensors) -> tuple[Tensor, Tensor]:
        """Sum the signals with noise and interference, and convert the sum.

        Returns
        -------
        tuple of Tensor, float [S, P] each
            Scaled sum sum_k c_k x_k + n, and the error-free sum sum_k w_k x_k.
        """
        impairments, sent, exact = self.alignment.impairments, on_air.sent, None
        if impairments.bends:
            total = superpose_distorted(on_air, impairments)
        else:
            total, exact = superpose(on_air, draw_noise(on_air, self.streams))
        for signal in unwanted.values():
            total = total + signal * on_air.expand(on_air.received_unit)
        if impairments.settings.adc_bits is not None:
            total = self._convert(on_air, total)
        if exact is None or on_air.part is not None:
            exact = sent.sum(sent.exact[:, None])[:, 0]
        return total, exact

    def _list_saved(self, on_air: OnAir, unwanted: Tensors) -> Tensors:
        """Return the coefficients, and the energy of the interference by segment."""
        sent = on_air.sent
        besides = {
            f"{name}/{sent.index}": compute_energies(replace(sent, x=signal), on_air.segments)
            for name, signal in unwanted.items()
        }
        return besides | coefficients(on_air, self.saves.gram)

    def _draw_interference(self, on_air: OnAir) -> Tensors:
        """Draw the interference, name -> Tensor [S, P] in the unit of f^H y.

        It consists of signals of other servers' devices, and of heavy-tailed interference.
        """
        sent, found = on_air.sent, {}
        if self.neighbours is not None:
            found["neighbours"] = self.neighbours.signal(on_air)
        index, round, impairments = sent.index, on_air.slot.round, self.alignment.impairments
        tails = impairments.tails(index, round, sent.num_coordinates)
        if tails is not None:
            found["tails"] = tails
        return found

    def _convert(self, on_air: OnAir, total: Tensor) -> Tensor:
        """Pass the received sum [S, P] through the server's converter."""
        factor = on_air.expand((on_air.coefficients.eta.sqrt() / on_air.unit).to(total.dtype))
        delivered = on_air.expand(on_air.weight > 0)
        quantise = self.alignment.impairments.quantise
        return torch.where(delivered, quantise(total * factor) / factor, 0.0)
