"""Wrappers of strategies of Flower's message API (`flwr.serverapp.strategy`), with ArrayRecords."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from otafl.core.errors import UserError
from otafl.flower.rounds import FlowerRounds, delegate, get_metrics
from otafl.own_loop.reports import UplinkTotals


class OverTheAirStrategy(Strategy):
    """Pass the updates of a strategy's clients through otafl's uplink before it sees them.

    What a client sends is the increment, its new arrays minus those of the round's model, all
    arrays one payload. Where the server gets only the weighted mean (transport over_the_air), each
    reply that the strategy is given holds the same arrays, the model plus the received mean; so an
    average of them, under any weights, is what came over the air. A strategy that looks at each
    update is refused. Where devices are separable (digital, ideal), each reply holds its own
    update as delivered, and a lost one is left out. The weights of the mean are the metric that
    the strategy weighs by ("num-examples"). Metrics travel free of error and charge. If no update
    was delivered, the model stays as it is. Replies with an error are devices that do not send.

    strategy: of `flwr.serverapp.strategy`, or your own, which is taken to average unless it has an
    attribute `needs_each = True`. devices: of the uplink, at least the number of nodes; all nodes
    connected at the first round if not given. device_key: a metric of the train replies that says
    which device (from 0 on) the client is, like a partition number; without it nodes are devices in
    the order of their ids, which simulations draw again. settings: as of `otafl.WirelessUplink`
    (channel, power, snr_db, csi, codec, transport, seed, ...).

    To the round's train metrics it adds airtime_s, tx_energy_j (of all), device_tx_energy_j (a list
    with one for each device), uplink_symbols, uplink_bits, side_symbols, aggregation_nmse and
    participants.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        devices: int | None = None,
        device_key: str | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(strategy, Strategy):
            older = "; those of flwr.server.strategy have the same names there"
            raise UserError(
                "otafl.flower: OverTheAirStrategy wraps a strategy of flwr.serverapp.strategy; "
                f"got a {type(strategy).__name__}" + older * hasattr(strategy, "aggregate_fit")
            )
        self.strategy = strategy
        self._rounds = FlowerRounds(strategy, devices, device_key, settings)
        self._model: ArrayRecord | None = None

    @property
    def totals(self) -> UplinkTotals:
        """Return what the uplink of all rounds so far cost."""
        return self._rounds.totals

    summary = delegate(Strategy.summary)
    configure_evaluate = delegate(Strategy.configure_evaluate)
    aggregate_evaluate = delegate(Strategy.aggregate_evaluate)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure as the strategy does, and keep what the clients begin with."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._model = arrays
        if self._rounds.device_key is None:
            self._rounds.register_nodes(grid.get_node_ids())
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the delivered replies with the wrapped strategy."""
        every = list(replies)
        sent = [reply for reply in every if not reply.has_error()]
        if not sent:
            return self.strategy.aggregate_train(server_round, every)
        if self._model is None:
            raise UserError("otafl.flower: configure_train must come before aggregate_train")
        keys = [_get_array_key(reply) for reply in sent]
        arrived = self._rounds.send(
            server_round,
            {name: array.numpy() for name, array in self._model.items()},
            [
                {n: array.numpy() for n, array in cast(ArrayRecord, reply.content[key]).items()}
                for reply, key in zip(sent, keys, strict=True)
            ],
            [self._read_metric(reply, self._find_weight_key) for reply in sent],
            [reply.metadata.src_node_id for reply in sent],
            self._get_devices(sent),
        )
        costs = MetricRecord(
            get_metrics(arrived.report) | {"device_tx_energy_j": arrived.report.energy_j.tolist()}
        )
        for place, weights in arrived.weights.items():
            record = ArrayRecord({name: Array(np.asarray(w)) for name, w in weights.items()})
            sent[place].content = _replace_record(sent[place].content, keys[place], record)
        lost = {id(sent[place]) for place in range(len(sent)) if place not in arrived.weights}
        kept = [reply for reply in every if id(reply) not in lost]
        arrays, metrics = self.strategy.aggregate_train(server_round, kept)
        return arrays, MetricRecord({**(metrics or {}), **costs})

    @property
    def _find_weight_key(self) -> str:
        """Return the metric that the strategy, or the one that it wraps, weighs by."""
        strategy: Any = self.strategy
        while not hasattr(strategy, "weighted_by_key") and hasattr(strategy, "strategy"):
            strategy = strategy.strategy
        return str(getattr(strategy, "weighted_by_key", "num-examples"))

    def _read_metric(self, reply: Message, key: str) -> float:
        found = [record[key] for record in reply.content.metric_records.values() if key in record]
        if len(found) != 1 or not isinstance(found[0], int | float):
            raise UserError(
                f"otafl.flower: the reply of node {reply.metadata.src_node_id} must have one "
                f"number '{key}' among its metrics; got {found or 'none'}"
            )
        return float(found[0])

    def _get_devices(self, sent: list[Message]) -> list[int] | None:
        """Return the device that each client says it is, a metric that goes no further."""
        key = self._rounds.device_key
        if key is None:
            return None
        devices = [int(self._read_metric(reply, key)) for reply in sent]
        for reply in sent:
            name, record = next(
                (n, one) for n, one in reply.content.metric_records.items() if key in one
            )
            rest = MetricRecord({n: value for n, value in record.items() if n != key})
            reply.content = _replace_record(reply.content, name, rest)
        return devices


def _get_array_key(reply: Message) -> str:
    """Return the name of a reply's only ArrayRecord."""
    keys = list(reply.content.array_records)
    if len(keys) != 1:
        raise UserError(
            f"otafl.flower: the reply of node {reply.metadata.src_node_id} must have one "
            f"ArrayRecord; got {len(keys)}"
        )
    return keys[0]


def _replace_record(content: RecordDict, key: str, record: Any) -> RecordDict:
    """Copy a message's content with another record in its place."""
    return RecordDict({name: record if name == key else one for name, one in content.items()})
