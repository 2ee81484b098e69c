"""Outdated channel knowledge: what is believed is the channel of some rounds ago, of the same
coherence blocks.

Under Jakes' spectrum E[h_hat^* h] = J0(2 pi f_D tau) over a delay tau (Clarke 1968), and with
fading that is drawn anew in each round nothing is known but its mean power.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from otafl.channels.config import DelayCsiConfig
from otafl.core.contracts import Channel, ChannelState, Hyper, LinkBudget
from otafl.core.rng import Streams


class Delay:
    """The estimate is the fading of `rounds` rounds before, of round 0 in the first ones; the
    large-scale gain is known."""

    pilot_symbols: ClassVar[int] = 0
    variance: ClassVar[Tensor | None] = None

    def __init__(
        self,
        config: DelayCsiConfig,
        channel: Channel,
        budget: LinkBudget,
        streams: Streams,
        hyper: Hyper,
    ) -> None:
        self._rounds, self._channel = config.rounds, channel
        self._seen: dict[int, ChannelState] = {}

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        # channels draw many rounds at once and keep one such batch: going back and forth between
        # two of them would draw both in every round
        first = max(0, round - self._rounds)
        for t in {first, round} - self._seen.keys():
            self._seen[t] = self._channel.state(t)
        self._seen = {t: state for t, state in self._seen.items() if first <= t <= round}
        past = self._seen[first]
        return past.over(h.shape[3] * (past.block_symbols or 1))
