"""Round logic that both kinds of Flower strategies share.

The clients' increments, their new weights minus the weights that they began with, pass the uplink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from otafl.core.errors import UserError
from otafl.own_loop.reports import UplinkReport, UplinkTotals
from otafl.own_loop.wireless import WirelessUplink

Arrays = Mapping[str, np.ndarray]
Method = TypeVar("Method", bound=Callable[..., Any])

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


@dataclass(frozen=True)
class RoundOutcome:
    """Server's view of a round.

    weights: of each client that is to be aggregated, by its place among those that sent; of none if
    no update was delivered. report: what it cost.
    """

    weights: dict[int, dict[str, np.ndarray]]
    report: UplinkReport


class FlowerRounds:
    """Keep the uplink of a run of Flower, and which of its devices each node is.

    Nodes are devices in the order of their ids at the first round, later ones after them; or as the
    clients say, in a metric `device_key`. Raises UserError for a strategy that cannot be served.
    """

    def __init__(
        self,
        strategy: Any,
        devices: int | None,
        device_key: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        if device_key is not None and devices is None:
            raise UserError(
                f"otafl.flower: device_key={device_key!r} needs devices, how many there are"
            )
        self.device_key = device_key
        self._settings = dict(settings)
        self._uplink = self._make_uplink(
            1 if devices is None else devices
        )  # says what is wrong at once
        self._is_started = devices is not None
        self._device_index: dict[int, int] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        refuse(strategy, self._uplink.has_per_device)

    @property
    def totals(self) -> UplinkTotals:
        """Return what all rounds so far cost."""
        return self._uplink.totals

    def _make_uplink(self, devices: int) -> WirelessUplink:
        return WirelessUplink(devices, caller="otafl.flower", **self._settings)

    def register_nodes(self, nodes: Iterable[int]) -> None:
        """Assign a device number to each connected node.

        The first call sets the number of devices if it was not given.
        """
        fresh = sorted(set(nodes) - set(self._device_index))
        if not self._is_started and fresh:
            self._uplink, self._is_started = self._make_uplink(len(fresh)), True
        for node in fresh:
            self._device_index[node] = len(self._device_index)

    def _get_devices(self, nodes: Sequence[int]) -> list[int]:
        self.register_nodes(nodes)
        places = [self._device_index[node] for node in nodes]
        if max(places) >= self._uplink.devices:
            raise UserError(
                f"otafl.flower: {len(self._device_index)} nodes have been seen, but the uplink has "
                f"{self._uplink.devices} devices; set devices={len(self._device_index)}"
            )
        return places

    def send(
        self,
        server_round: int,
        base: Arrays,
        new: Sequence[Arrays],
        weights: Sequence[float],
        nodes: Sequence[int],
        devices: Sequence[int] | None = None,
    ) -> RoundOutcome:
        """Return the weights that reach the server in a round (from 1 on).

        base: what the clients began with. devices: of each client, where the clients say.
        """
        for arrays, node in zip(new, nodes, strict=True):
            if set(arrays) != set(base):
                other = ", ".join(sorted(set(arrays) ^ set(base)))
                raise UserError(
                    f"otafl.flower: the arrays of node {node} are not those of the model that it "
                    f"was sent: {other}"
                )
        updates = [
            {name: _compute_increment(arrays[name], start) for name, start in base.items()}
            for arrays in new
        ]
        if not self._dtypes:  # server optimisers make double precision of the model
            self._dtypes = {name: array.dtype for name, array in updates[0].items()}
        updates = [
            {name: a.astype(self._dtypes[name], copy=False) for name, a in arrays.items()}
            for arrays in updates
        ]
        senders = self._get_devices(nodes) if devices is None else list(devices)
        delivery = self._uplink.deliver(server_round - 1, updates, weights, senders)
        if delivery.per_device is not None:
            found = {
                k: _add_increment(base, one)
                for k, one in enumerate(delivery.per_device)
                if one is not None
            }
        elif delivery.report.participants:
            model = _add_increment(base, delivery.mean)
            found = dict.fromkeys(range(len(new)), model)
        else:
            found = {}
        return RoundOutcome(found, delivery.report)


def delegate(method: Method) -> Method:
    """Make the method of a strategy that has the one it wraps do it."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.strategy, method.__name__)(*args, **kwargs)

    return cast(Method, call)


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


def get_metrics(report: UplinkReport) -> dict[str, float]:
    """Return what a round's metrics say of the uplink, under otafl's names."""
    return {
        "airtime_s": report.airtime_s,
        "tx_energy_j": float(report.energy_j.sum()),
        "uplink_symbols": report.symbols,
        "uplink_bits": report.bits,
        "side_symbols": report.side_symbols,
        "aggregation_nmse": report.nmse,
        "participants": float(report.participants),
    }


def _compute_increment(new: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return new - start; truth values as they are."""
    if new.shape != start.shape:
        raise UserError(
            f"otafl.flower: a client's array has shape {list(new.shape)}, and the model's "
            f"{list(start.shape)}"
        )
    return new if new.dtype == bool else np.asarray(new - start.astype(new.dtype, copy=False))


def _add_increment(base: Arrays, increment: Arrays) -> dict[str, np.ndarray]:
    """Return the model plus an increment, in the model's dtypes."""
    return {
        name: increment[name]
        if start.dtype == bool
        else np.asarray(start + increment[name]).astype(start.dtype, copy=False)
        for name, start in base.items()
    }
