"""Wrapper of strategies of Flower's message API (`flwr.serverapp.strategy`), with ArrayRecords.

The clients' increments, their new weights minus the weights that they began with, pass the uplink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from otafl.core.errors import UserError
from otafl.own_loop.update_kinds import UplinkTotals
from otafl.own_loop.wireless import WirelessUplink

Arrays = Mapping[str, np.ndarray]

NEEDS_EACH = (
    "Krum",
    "MultiKrum",
    "Bulyan",
    "FedMedian",
    "FedTrimmedAvg",
    "QFedAvg",
    "DifferentialPrivacyServerSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DPFedAvgFixed",
    "DPFedAvgAdaptive",
)
"""Flower's strategies that look at each client's update."""

NO_MODELS = ("FedXgbBagging", "FedXgbCyclic", "FedXgbNnAvg")
"""Strategies whose clients do not send weights of one model."""


def refuse(strategy: Any, has_per_device: bool) -> None:
    """Raise UserError for a strategy that the uplink cannot serve, or that wraps such a one."""
    name = type(strategy).__name__
    kinds = {kind.__name__ for kind in type(strategy).__mro__}
    if kinds & set(NO_MODELS):
        raise UserError(f"otafl.flower: the clients of {name} do not send weights of one model")
    each = bool(kinds & set(NEEDS_EACH)) or bool(getattr(strategy, "needs_each", False))
    if each and not has_per_device:
        raise UserError(
            f"otafl.flower: {name} looks at each client's update, but over the air the server gets "
            "only their weighted mean; use transport='digital', or a strategy that averages, "
            "like FedAvg or FedAdam"
        )
    inner = getattr(strategy, "strategy", None)
    if inner is not None:
        refuse(inner, has_per_device)


def _compute_increment(new: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return new - start; truth values as they are."""
    if new.shape != start.shape:
        raise UserError(
            f"otafl.flower: a client's array has shape {list(new.shape)}, and the model's "
            f"{list(start.shape)}"
        )
    return new if new.dtype == bool else np.asarray(new - start.astype(new.dtype, copy=False))


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
    attribute `needs_each = True`. devices: of the uplink, at least the number of nodes. device_key:
    a metric of the train replies that says which device (from 0 on) the client is, like a partition
    number; without it nodes are devices in the order of their ids, which simulations draw again.
    settings: as of `otafl.WirelessUplink` (channel, power, snr_db, csi, codec, transport, seed,
    ...).

    To the round's train metrics it adds airtime_s, tx_energy_j (of all), device_tx_energy_j (a list
    with one for each device), uplink_symbols, uplink_bits, side_symbols, aggregation_nmse and
    participants.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        devices: int,
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
        self._device_key = device_key
        self._uplink = WirelessUplink(devices, caller="otafl.flower", **settings)
        self._device_index: dict[int, int] = {}
        self._model: dict[str, np.ndarray] | None = None
        self._dtypes: dict[str, np.dtype[Any]] = {}
        refuse(strategy, self._uplink.has_per_device)

    @property
    def totals(self) -> UplinkTotals:
        """Return what the uplink of all rounds so far cost."""
        return self._uplink.totals

    def summary(self) -> None:
        """Print the summary of the wrapped strategy."""
        self.strategy.summary()

    def configure_evaluate(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        """Configure evaluation as the strategy does."""
        return self.strategy.configure_evaluate(*args, **kwargs)

    def aggregate_evaluate(self, *args: Any, **kwargs: Any) -> MetricRecord | None:
        """Aggregate evaluation as the strategy does."""
        return self.strategy.aggregate_evaluate(*args, **kwargs)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure as the strategy does, and keep what the clients begin with."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._model = {name: array.numpy() for name, array in arrays.items()}
        if self._device_key is None:
            self._register_nodes(grid.get_node_ids())
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
        updates = [self._read_update(*one) for one in zip(sent, keys, strict=True)]
        weights = [self._read_metric(reply, self._find_weight_key) for reply in sent]
        senders = self._get_devices(sent)
        delivery = self._uplink.deliver(server_round - 1, updates, weights, senders)
        increments = delivery.per_device
        if increments is None:
            increments = [delivery.mean if delivery.report.participants else None] * len(sent)
        kept = []
        for reply, key, increment in zip(sent, keys, increments, strict=True):
            if increment is not None:
                # the model plus an increment, in the model's dtypes
                model = {
                    name: increment[name]
                    if start.dtype == bool
                    else np.asarray(start + increment[name]).astype(start.dtype, copy=False)
                    for name, start in self._model.items()
                }
                record = ArrayRecord({name: Array(array) for name, array in model.items()})
                reply.content = _replace_record(reply.content, key, record)
                kept.append(reply)
        kept += [reply for reply in every if reply.has_error()]
        arrays, metrics = self.strategy.aggregate_train(server_round, kept)
        report = delivery.report
        costs = {
            "airtime_s": report.airtime_s,
            "tx_energy_j": float(report.energy_j.sum()),
            "uplink_symbols": report.symbols,
            "uplink_bits": report.bits,
            "side_symbols": report.side_symbols,
            "aggregation_nmse": report.nmse,
            "participants": float(report.participants),
            "device_tx_energy_j": report.energy_j.tolist(),
        }
        return arrays, MetricRecord({**(metrics or {}), **costs})

    def _read_update(self, reply: Message, key: str) -> dict[str, np.ndarray]:
        """Return the increment of a client, in the dtypes of the first one.

        Server optimisers make double precision of the model.
        """
        assert self._model is not None
        record = cast(ArrayRecord, reply.content[key])
        arrays = {name: array.numpy() for name, array in record.items()}
        if set(arrays) != set(self._model):
            other = ", ".join(sorted(set(arrays) ^ set(self._model)))
            raise UserError(
                f"otafl.flower: the arrays of node {reply.metadata.src_node_id} are not those of "
                f"the model that it was sent: {other}"
            )
        update = {
            name: _compute_increment(arrays[name], start) for name, start in self._model.items()
        }
        self._dtypes = self._dtypes or {name: array.dtype for name, array in update.items()}
        return {name: one.astype(self._dtypes[name], copy=False) for name, one in update.items()}

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

    def _register_nodes(self, nodes: Iterable[int]) -> None:
        """Assign a device number to each node: in the order of ids, later ones after them."""
        for node in sorted(set(nodes) - set(self._device_index)):
            self._device_index[node] = len(self._device_index)

    def _get_devices(self, sent: list[Message]) -> list[int]:
        """Return the device of each client: that of its node, or as a metric of the client says.

        The metric goes no further.
        """
        key = self._device_key
        if key is None:
            nodes = [reply.metadata.src_node_id for reply in sent]
            self._register_nodes(nodes)
            places = [self._device_index[node] for node in nodes]
            if max(places) >= self._uplink.devices:
                count = len(self._device_index)
                raise UserError(
                    f"otafl.flower: {count} nodes have been seen, but the uplink has "
                    f"{self._uplink.devices} devices; set devices={count}"
                )
            return places
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
