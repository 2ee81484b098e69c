"""`otafl.flower` with real Flower: ClientApps called directly, and the page of the docs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.pages import DOCS, read_lines, write_files

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.server import strategy as older
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.supercore.task_identity import TaskIdentity

from otafl.core.errors import UserError
from otafl.flower import OverTheAirStrategy
from otafl.own_loop.wireless import WirelessUplink

pytestmark = pytest.mark.slow

DOC = DOCS / "flower.md"
NODES = 4
REALS = 64 * 32 + 32 + 32 * 10 + 10


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The modules of docs/flower.md."""
    folder = tmp_path_factory.mktemp("flower")
    write_files(DOC, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        torch.manual_seed(0)
        import client_app

        yield types.SimpleNamespace(client=client_app)


class Direct(Grid):
    """Nodes 100, 97, 94, 91 with partitions 0, 1, 2, 3, whose ClientApps are called one by one."""

    def __init__(self, app: ClientApp) -> None:
        self._app, self._contexts = app, {}
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        for part in range(NODES):
            config = {"partition-id": part, "num-partitions": NODES}
            self._contexts[100 - 3 * part] = Context(1, 100 - 3 * part, config, RecordDict(), {})

    def get_node_ids(self) -> list[int]:
        return list(self._contexts)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            try:
                replies.append(self._app(message, self._contexts[message.metadata.dst_node_id]))
            except RuntimeError as error:
                replies.append(Message(Error(6, str(error)), reply_to=message))
        return replies

    def _get_nothing(self, *given: Any) -> Any:
        raise NotImplementedError

    run = property(_get_nothing)
    set_run = create_message = push_messages = pull_messages = _get_nothing


def end_programs(home: Path) -> None:
    """End the programs that Flower left running for a home folder."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("FLWR_HOME") == str(home):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_the_page_from_an_empty_folder(tmp_path: Path) -> None:
    """Its files and commands as they stand, in Flower's own simulation."""
    pytest.importorskip("ray")
    app, home = tmp_path / "app", tmp_path / "home"
    app.mkdir()
    write_files(DOC, app)
    own = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    own |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    own |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    try:
        done = subprocess.run(
            ["bash", "-ec", "\n".join(read_lines(DOC))],
            cwd=app,
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=400,
        )
    finally:
        end_programs(home)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rounds = re.findall(r"^([1-5]) (\S+) (\S+) (\S+)\s*$", done.stdout, flags=re.M)
    assert [int(number) for number, *_ in rounds] == [1, 2, 3, 4, 5], done.stdout[-3000:]
    assert all(float(value) > 0 for _, *values in rounds for value in values)
    (last,) = re.findall(r"^(0\.\d+) \[", done.stdout, flags=re.M)
    assert float(last) > 0.5  # of ten classes


def trained(apps: Any, strategy: Any, rounds: int = 3, client: ClientApp | None = None) -> Any:
    """Flower's Result of a training."""
    return started(apps, strategy, Direct(client or apps.client.app), rounds)


def started(apps: Any, strategy: Any, grid: Grid, rounds: int) -> Any:
    torch.manual_seed(1)
    start = ArrayRecord(apps.client.Net().state_dict())
    return strategy.start(grid, start, rounds, train_config=ConfigRecord({"lr": 0.2}))


def wrapped(inner: Any = None, **settings: Any) -> OverTheAirStrategy:
    sections = {"channel": "rayleigh", "power": "gbma", "snr_db": 20.0, "seed": 3, **settings}
    inner = strategies.FedAvg() if inner is None else inner
    return OverTheAirStrategy(inner, devices=NODES, device_key="partition-id", **sections)


def weights(result: Any) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in result.arrays.items()}


def test_airtime_and_joules(apps: Any) -> None:
    """Symbols over bandwidth, and |p_k|^2 E|x|^2 over them: at full power 0.2 W for each symbol at
    2 MHz, in each round and in all."""
    channel = {"name": "rayleigh", "bandwidth_hz": 2e6, "tx_power_dbm": 23.010299956639813}
    strategy = wrapped(channel=channel, power="full")
    metrics = trained(apps, strategy).train_metrics_clientapp
    for round in (1, 2, 3):
        assert metrics[round]["uplink_symbols"] == REALS
        assert metrics[round]["airtime_s"] == pytest.approx(REALS / 2e6)
        assert metrics[round]["participants"] == NODES
        device = metrics[round]["device_tx_energy_j"]
        np.testing.assert_allclose(device, 0.2 * REALS / 2e6, rtol=1e-4)
        assert metrics[round]["tx_energy_j"] == pytest.approx(sum(device))
    assert strategy.totals.airtime_s == pytest.approx(3 * REALS / 2e6)
    assert strategy.totals.energy_j.sum() == pytest.approx(3 * sum(device), rel=1e-4)


def test_what_arrives_is_what_the_uplink_makes_of_the_increments(apps: Any) -> None:
    """Two rounds with unlike weights by hand, device k being partition k: the same channel, noise
    and weights as a WirelessUplink of that seed, from the model of each round."""
    sent: list[dict[str, np.ndarray]] = []
    bases: list[dict[str, np.ndarray]] = []
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        reply = apps.client.train(message, context)
        part = context.node_config["partition-id"]
        reply.content["metrics"]["num-examples"] = 1 + 10 * part
        old, new = (one.content["arrays"].items() for one in (message, reply))
        bases.append({n: a.numpy() for n, a in old})
        sent.append({n: a.numpy() - bases[-1][n] for n, a in new} | {"part": np.float32(part)})
        return reply

    inner = strategies.FedAvg(fraction_evaluate=0.0)
    result = trained(apps, wrapped(inner, snr_db=0.0), rounds=2, client=client)
    uplink = WirelessUplink(NODES, channel="rayleigh", power="gbma", snr_db=0.0, seed=3)
    after = [bases[NODES], weights(result)]
    for t in range(2):
        parts = [int(one.pop("part")) for one in sent[NODES * t : NODES * (t + 1)]]
        updates = [sent[NODES * t + parts.index(k)] for k in range(NODES)]
        mean, report = uplink(t, updates, weights=[1, 11, 21, 31])
        for name, value in after[t].items():
            expected = bases[NODES * t][name] + mean[name]
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5)
        metrics = result.train_metrics_clientapp[t + 1]
        assert metrics["aggregation_nmse"] == pytest.approx(report.nmse, rel=1e-3)
        np.testing.assert_allclose(metrics["device_tx_energy_j"], report.energy_j, rtol=1e-4)


def test_strategies_that_need_each_update(apps: Any) -> None:
    for name in ("Krum", "MultiKrum", "Bulyan", "FedMedian", "FedTrimmedAvg"):
        settings = {"num_nodes_to_select": 2} if name == "MultiKrum" else {}
        with pytest.raises(UserError, match=f"{name} looks at each client's update, but over the"):
            wrapped(getattr(strategies, name)(**settings))
    clipping = strategies.DifferentialPrivacyServerSideFixedClipping
    with pytest.raises(UserError, match="ServerSideFixedClipping looks at each"):
        wrapped(clipping(strategies.FedAvg(), 0.1, 1.0, NODES))
    with pytest.raises(UserError, match="FedXgbBagging do not send weights of one model"):
        wrapped(strategies.FedXgbBagging(), transport="digital")
    plain = trained(apps, strategies.FedMedian(), rounds=2)
    everyone = {"name": "digital", "gain_threshold": 0.0}  # also devices in a deep fade
    median = trained(apps, wrapped(strategies.FedMedian(), transport=everyone), rounds=2)
    for name, value in weights(plain).items():
        np.testing.assert_allclose(weights(median)[name], value, rtol=0, atol=1e-5)
    assert median.train_metrics_clientapp[1]["uplink_bits"] == 32 * REALS * NODES


def test_failures_and_lost_updates_do_not_send(apps: Any) -> None:
    """Partition 2 fails; of the others' digital packets some are lost, and the average is over
    those that came."""
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("out of memory")
        return apps.client.train(message, context)

    given: list[int] = []

    class Counting(strategies.FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            given.append(sum(not one.has_error() for one in replies))
            return super().aggregate_train(server_round, replies)

    inner = Counting(fraction_evaluate=0.0)
    metrics = trained(apps, wrapped(inner), 2, client).train_metrics_clientapp
    for round in (1, 2):
        joules = np.array(metrics[round]["device_tx_energy_j"])
        assert (joules > 0).tolist() == [True, True, False, True]
        assert metrics[round]["participants"] == 3
    lossy = {"transport": "digital", "csi": {"name": "error", "variance": 0.5}}
    metrics = trained(apps, wrapped(inner, **lossy), 6, client).train_metrics_clientapp
    counts = [metrics[round]["participants"] for round in range(1, 7)]
    assert 0 < sum(counts) < 18
    assert given == [3, 3, *counts]


def test_settings_are_said_at_once(apps: Any) -> None:
    with pytest.raises(UserError, match="power: unknown power policy 'gmba'; did you mean 'gbma'"):
        wrapped(power="gmba")
    with pytest.raises(UserError, match=r"got a FedAvg; those of flwr.server.strategy have the"):
        OverTheAirStrategy(older.FedAvg(), devices=4)
    with pytest.raises(UserError, match="4 nodes have been seen, but the uplink has 2 devices"):
        trained(apps, OverTheAirStrategy(strategies.FedAvg(), devices=2, channel="awgn"))
    key = OverTheAirStrategy(strategies.FedAvg(), devices=4, device_key="number")
    with pytest.raises(UserError, match="must have one number 'number' among its metrics; got non"):
        trained(apps, key)
