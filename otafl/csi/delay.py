"""Channel of an earlier round, in the same coherence blocks, as the estimate.

The estimate is the fading `rounds` rounds ago. In the first rounds that is before the run, where
the same random process has its past. The large-scale gain is known. With a reflecting surface, the
estimate is the channel with the earlier phases of the surface, and the surface is set by the
earlier paths. Under Jakes' spectrum and a delay tau,

    E[h_hat^* h] = J0(2 pi f_D tau).

With fading that is new in each round, only its mean power is known (set channel.speed_kmh). At
3 km/h and 3.5 GHz the correlation is 0.91 after 10 ms, and at most 0.4 in magnitude beyond 40 ms.

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
    """Delayed channel estimates."""

    class Settings(Csi.Settings):
        example: ClassVar = {"channel.speed_kmh": 3.0, "channel.round_interval_s": 0.01}

        name: Literal["delay"] = "delay"
        rounds: int = Field(1, ge=1)
        """number of rounds between estimate and use; in the first ones the estimate is from before
        the run"""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._seen: dict[int, ChannelState] = {}

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        # channels draw many rounds at a time and keep one such batch; alternating between two
        # batches would draw both in every round
        """Return the fading of `rounds` rounds ago, complex [S, K, A, B, F]."""
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
