"""`otafl.flower.LegacyOverTheAir` with real Flower, in its older server."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server
from flwr.server import strategy as older
from flwr.server.client_manager import SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from otafl.core.errors import UserError
from otafl.flower import LegacyOverTheAir

pytestmark = pytest.mark.slow

NODES = 4


class Client(ClientProxy):
    """Moves each weight by so much times its number plus one."""

    def __init__(self, number: int) -> None:
        super().__init__(str(number))
        self.number = self.node_id = number

    def fit(self, ins: Any, timeout: float | None, group_id: int | None) -> FitRes:
        if self.number == 3 and ins.config.get("fails"):
            raise RuntimeError("out of memory")
        new = [
            w + np.float32(0.1 * (self.number + 1)) for w in parameters_to_ndarrays(ins.parameters)
        ]
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(new), 1 + self.number, {})

    def _get_nothing(self, *given: Any) -> Any:
        raise NotImplementedError

    get_properties = get_parameters = evaluate = reconnect = _get_nothing


def served(strategy: Any, rounds: int = 2) -> tuple[list[np.ndarray], Any]:
    """The model after so many rounds of Flower's older server, and its history."""
    manager = SimpleClientManager()
    for number in range(NODES):
        manager.register(Client(number))
    server = Server(client_manager=manager, strategy=strategy)
    history, _ = server.fit(rounds, None)
    return parameters_to_ndarrays(server.parameters), history


def older_settings(**more: Any) -> dict[str, Any]:
    start = ndarrays_to_parameters([np.zeros((3, 5), "float32"), np.zeros(4, "float32")])
    return {"initial_parameters": start, "fraction_evaluate": 0.0, **more}


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam"])
def test_the_older_api(name: str) -> None:
    """The mean of 0.1 (k + 1) under weights k + 1 is 0.3 a round: FedAvg ends at 0.6."""
    kind = getattr(older, name)
    plain, _ = served(kind(**older_settings()))
    over = LegacyOverTheAir(kind(**older_settings()), channel="awgn", power="full", snr_db=120.0)
    model, history = served(over)
    for one, other in zip(model, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
        assert one.dtype == other.dtype
    if name == "FedAvg":
        np.testing.assert_allclose(model[0], 0.6, atol=1e-4)
    fit = {
        key: [value for _, value in rows] for key, rows in history.metrics_distributed_fit.items()
    }
    assert fit["uplink_symbols"] == [19, 19]
    assert fit["airtime_s"] == pytest.approx([19e-6, 19e-6])
    assert fit["device_tx_energy_j/3"] == pytest.approx([19e-7, 19e-7], rel=1e-4)
    assert fit["tx_energy_j"] == pytest.approx([4 * 19e-7] * 2, rel=1e-4)
    assert over.totals.rounds == 2


def test_the_older_api_with_noise_failures_and_each_update() -> None:
    noisy, _ = served(LegacyOverTheAir(older.FedAvg(**older_settings()), snr_db=0.0))
    assert 0.02 < np.abs(noisy[0] - 0.6).mean() < 2.0
    fails = older_settings(on_fit_config_fn=lambda round: {"fails": True})
    over = LegacyOverTheAir(older.FedAvg(**fails), devices=4, channel="awgn", snr_db=120.0)
    model, history = served(over)
    np.testing.assert_allclose(model[0], 2 * 0.1 * 14 / 6, atol=1e-4)
    assert history.metrics_distributed_fit["participants"] == [(1, 3.0), (2, 3.0)]
    assert over.totals.energy_j[3] == 0
    with pytest.raises(UserError, match="Krum looks at each client's update"):
        LegacyOverTheAir(older.Krum(**older_settings()))
    median = LegacyOverTheAir(older.FedMedian(**older_settings()), transport="digital")
    np.testing.assert_allclose(served(median)[0][0], 0.5, atol=1e-5)
