"""Superpose all devices' analogue signals, sent at once on the same symbols, with one noise.

A symbol is a channel use, and what arrives of it is one weighted reduction of real numbers
(`analog`): no complex array of the payload's size is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Blocks
from otafl.uplink.coherent.analog import Analog, Sums
from otafl.uplink.delivery import Delivery
from otafl.uplink.impairments.bent import bent_sum
from otafl.uplink.impairments.impairments import NOISE
from otafl.uplink.on_air import OnAir
from otafl.uplink.segments import energies


class OverTheAir(Analog):
    accounts_privacy: ClassVar[bool] = True
    hears_neighbours: ClassVar[bool] = True
    hears_tails: ClassVar[bool] = True

    class Settings(Analog.Settings):
        name: Literal["over_the_air"] = "over_the_air"

    def measures(self) -> dict[str, Tensor]:
        return {} if self.setup.privacy is None else self.setup.privacy.measures()

    def kept(self) -> dict[str, Any]:
        """Return also what the accounting keeps."""
        if self.setup.privacy is None:
            return super().kept()
        return {**super().kept(), "privacy": self.setup.privacy.kept()}

    def restore(self, kept: Mapping[str, Any]) -> None:
        super().restore(kept)
        if self.setup.privacy is not None:
            self.setup.privacy.restore(kept["privacy"])

    def _superposed(self, sent: Iterator[OnAir], delivery: Delivery) -> Iterator[Sums]:
        """Send the groups one after the other; of what is received besides, the energy by segment
        is reported."""
        for on_air in sent:
            unwanted, symbols = self._unwanted(on_air), on_air.symbols
            for name, signal in unwanted.items() if self.setup.save_link else ():
                energy = energies(replace(symbols.sent, x=signal), symbols.segments)
                delivery.tally.saved[f"{name}/{symbols.index}"] = energy
            yield on_air, *self._superpose(on_air, unwanted)

    def _superpose(self, on_air: OnAir, unwanted: Blocks) -> tuple[Tensor, Tensor]:
        """Sum the signals as they arrive, with one noise and what is `_unwanted`, and convert what
        is received.

        Returns
        -------
        sum_k c_k x_k + n [S, P], scaled by the receiver, and the error-free sum_k w_k x_k [S, P].
        """
        setup, symbols, sent = self.setup, on_air.symbols, on_air.symbols.sent
        exact, round = None, symbols.slot.round
        if setup.impairments.bends:
            total = bent_sum(on_air, setup.impairments)
        else:
            stream = NOISE / symbols.index
            total, exact = on_air.superposed(setup.streams.normal(stream, round, (sent.reals,)))
        for signal in unwanted.values():
            total = total + signal * symbols.segments.at_reals(on_air.received_unit, sent.reals)
        if setup.impairments.settings.adc_bits is not None:
            total = self._converted(on_air, total)
        if exact is None or on_air.part is not None:
            exact = sent.sum(sent.exact[:, None])[:, 0]
        return total, exact

    def _unwanted(self, on_air: OnAir) -> Blocks:
        """Return what is received besides, name -> [S, P] in the unit of f^H y: signals of other
        servers' devices, and heavy-tailed interference."""
        setup, symbols, found = self.setup, on_air.symbols, {}
        if setup.neighbours is not None:
            found["neighbours"] = setup.neighbours.signal(on_air)
        tails = setup.impairments.tails(symbols.index, symbols.slot.round, symbols.sent.reals)
        if tails is not None:
            found["tails"] = tails
        return found

    def _converted(self, on_air: OnAir, total: Tensor) -> Tensor:
        """Put what is received of a sum [S, P] through the server's converter."""
        symbols, sent = on_air.symbols, on_air.symbols.sent
        received = on_air.coefficients.eta.sqrt() / on_air.unit
        factor = symbols.segments.at_reals(received, sent.reals)
        heard = symbols.segments.at_reals(on_air.weight > 0, sent.reals)
        quantise = self.setup.impairments.quantise
        return torch.where(heard, quantise(total * factor) / factor, 0.0)
