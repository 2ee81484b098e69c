"""What every transport is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from otafl.core.contracts import (
    Codec,
    Csi,
    Hyper,
    LinkBudget,
    PowerPolicy,
    Received,
    Receiver,
    Statistics,
)
from otafl.core.rng import Streams
from otafl.transport.impairments import Impairments
from otafl.transport.superpose import Signal


@dataclass(frozen=True)
class LinkSetup:
    """budget: powers and bandwidth. statistics: of the channel, which a transport that has power
    control lets the policy prepare with. hyper: the transport's own stackable fields, policy_hyper:
    the policy's. save_link: report h, p, c, eta; save_gram: and the signals' Gram matrices with
    them."""

    budget: LinkBudget
    csi: Csi
    receiver: Receiver
    policy: PowerPolicy
    statistics: Statistics
    policy_hyper: Hyper
    impairments: Impairments
    codec: Codec
    streams: Streams
    hyper: Hyper
    save_link: bool = False
    save_gram: bool = True


class Gathered:
    """What has been received of a payload, group by group."""

    def __init__(self) -> None:
        self._means: list[Any] = []
        self._counts: list[Any] = []
        self._arrived: Tensor | None = None
        self._every_trial = False

    def add(self, mean: Any, count: Any) -> None:
        self._means.append(mean)
        self._counts.append(count)

    def arrived(self, sent: Signal, weight: Tensor | None = None) -> None:
        """An uplink group of which this weight [S] arrived; None: every row of every trial."""
        if weight is None and min(sent.cohort.counts) > 0:
            self._every_trial = True
            return
        some = (sent.cohort.rows_of if weight is None else weight) > 0
        self._arrived = some if self._arrived is None else self._arrived | some

    def received(
        self,
        each: tuple[Any, ...] | None = None,
        came: tuple[Tensor | None, ...] | None = None,
    ) -> Received:
        if came is not None and all(rows is None for rows in came):
            came = None
        alive = None if self._every_trial else self._arrived
        return Received(tuple(self._means), tuple(self._counts), each, alive, came)
