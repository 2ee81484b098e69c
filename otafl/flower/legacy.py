"""Wrap strategies of Flower's older API (`flwr.server.strategy`), whose arrays are NumPy's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from flwr.common import (
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from otafl.core.errors import UserError
from otafl.flower.rounds import Rounds, delegate, get_metrics
from otafl.own_loop.reports import UplinkTotals


class LegacyOverTheAir(Strategy):
    """Wrap a strategy of `flwr.server.strategy` as `otafl.flower.OverTheAir` does a newer one.

    The weights of the mean are `num_examples`, device_key is a metric of the fit results, and to
    the round's fit metrics it adds the same figures, with "device_tx_energy_j/0", ... for each
    device, since these metrics have no lists.
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
            raise UserError(
                "otafl.flower: LegacyOverTheAir wraps a strategy of flwr.server.strategy; got a "
                f"{type(strategy).__name__}; OverTheAir is for those of flwr.serverapp.strategy"
            )
        self.strategy = strategy
        self._rounds = Rounds(strategy, devices, device_key, settings)
        self._model: Parameters | None = None

    @property
    def totals(self) -> UplinkTotals:
        """Return what the uplink of all rounds so far cost."""
        return self._rounds.totals

    initialize_parameters = delegate(Strategy.initialize_parameters)
    configure_evaluate = delegate(Strategy.configure_evaluate)
    aggregate_evaluate = delegate(Strategy.aggregate_evaluate)
    evaluate = delegate(Strategy.evaluate)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Configure as the strategy does, and keep what the clients begin with."""
        self._model = parameters
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        if self._rounds.device_key is None:
            self._rounds.register_nodes(_get_node(proxy) for proxy in client_manager.all().values())
        return asked

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Aggregate the delivered results with the wrapped strategy."""
        if not results:
            return self.strategy.aggregate_fit(server_round, results, failures)
        if self._model is None:
            raise UserError("otafl.flower: configure_fit must come before aggregate_fit")
        arrived = self._rounds.send(
            server_round,
            _to_arrays(self._model),
            [_to_arrays(result.parameters) for _, result in results],
            [result.num_examples for _, result in results],
            [_get_node(proxy) for proxy, _ in results],
            self._get_devices(results),
        )
        costs: dict[str, Scalar] = dict(get_metrics(arrived.report))
        for device, joules in enumerate(arrived.report.energy_j.tolist()):
            costs[f"device_tx_energy_j/{device}"] = joules
        kept = [
            (proxy, dataclasses.replace(result, parameters=_to_parameters(arrived.weights[place])))
            for place, (proxy, result) in enumerate(results)
            if place in arrived.weights
        ]
        parameters, metrics = self.strategy.aggregate_fit(server_round, kept, failures)
        return parameters, {**metrics, **costs}

    def _get_devices(self, results: list[tuple[ClientProxy, FitRes]]) -> list[int] | None:
        """Return the device that each client says it is."""
        key = self._rounds.device_key
        if key is None:
            return None
        for proxy, result in results:
            if key not in result.metrics:
                raise UserError(f"otafl.flower: client {proxy.cid} has no metric '{key}'")
        return [int(result.metrics[key]) for _, result in results]


def _get_node(proxy: ClientProxy) -> int:
    """Return a number for a client, the same in all rounds."""
    node: int | None = getattr(proxy, "node_id", None)
    if node is not None:
        return node
    try:
        return int(proxy.cid)
    except ValueError:
        raise UserError(
            f"otafl.flower: client {proxy.cid!r} has no number; set device_key"
        ) from None


def _to_arrays(parameters: Parameters) -> dict[str, np.ndarray]:
    return {str(i): array for i, array in enumerate(parameters_to_ndarrays(parameters))}


def _to_parameters(weights: dict[str, np.ndarray]) -> Parameters:
    return ndarrays_to_parameters(list(weights.values()))
