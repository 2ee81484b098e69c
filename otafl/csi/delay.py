"""Let devices and server know the channel of some rounds ago, of the same coherence blocks.

The estimate is the fading of `rounds` rounds before; in the first ones that is before the run,
where the same process has its past. The large-scale gain is known. With a reflecting surface it is
the channel with the surface as it was set then, and the surface is set by the paths of then. Under
Jakes' spectrum E[h_hat^* h] = J0(2 pi f_D tau) over a delay tau; with fading that is drawn anew in
each round nothing is known but its mean power (set channel.speed_kmh).

References
----------
Clarke 1968, "A Statistical Theory of Mobile-Radio Reception".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from otafl.channels.fading import ROUNDS_PER_BLOCK
from otafl.core.contracts import ChannelState
from otafl.csi.base import Csi


class Delay(Csi):
    class Settings(Csi.Settings):
        example: ClassVar = {"channel.speed_kmh": 3.0}

        name: Literal["delay"] = "delay"
        rounds: int = Field(1, ge=1)
        """rounds between estimate and use; in the first ones the estimate is from before the run"""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen: dict[int, ChannelState] = {}

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        # channels draw many rounds at once and keep one such batch: going back and forth between
        # two of them would draw both in every round
        first = round - self.settings.rounds
        if first not in self._seen:
            together = range(first, max(first + 1, min(first + ROUNDS_PER_BLOCK, 0)))
            self._seen |= {t: self.channel.get_state(t) for t in together}
        if round not in self._seen:
            self._seen[round] = self.channel.get_state(round)
        self._seen = {t: state for t, state in self._seen.items() if first <= t <= round}
        past = self._seen[first]
        return past.extend_to(h.shape[3] * (past.block_symbols or 1))

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        return paths(round - self.settings.rounds)
