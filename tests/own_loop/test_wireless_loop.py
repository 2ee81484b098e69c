"""`WirelessUplink`, the uplink of a loop over rounds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from support.rounding import assert_agree

from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.own_loop.wireless import WirelessUplink
from otafl.scenario import expand, load_scenario

pytestmark = pytest.mark.exact


def updates(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5, 3, 4)).astype(dtype)


X = updates()
CASES: dict[str, dict[str, Any]] = {
    "error feedback": {"codec": {"name": "topk", "keep": 0.3}, "csi": {"name": "error"}},
    "a queue of energy": {"power": {"name": "lyapunov"}},
    "charged signalling": {"csi": "pilots", "signalling": {"charge": True, "sync_symbols": 9}},
    "lost packets": {"transport": "digital", "csi": {"name": "error", "variance": 0.3}},
    "digital sums": {"transport": "sumcomp", "power": "ci"},
    "counts without channel knowledge": {
        "transport": {"name": "blind_unsourced", "codebook": "aggregate"},
        "channel": {"name": "rayleigh", "antennas": 4},
    },
    "moving devices": {"channel": {"name": "rayleigh", "speed_kmh": 3.0, "block_symbols": 200}},
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_uplink_of_the_engine(case: str) -> None:
    """Trial 1 of a scenario, five rounds of 4 of its 6 devices: what the server gets and what it
    costs, with everything that lasts from round to round."""
    sections = {"channel": "rayleigh", "power": "gbma", **CASES[case]}
    engine, rounds = recorded(sections)
    uplink = WirelessUplink(6, seed=5, trial=1, **sections)
    for t, (x, weight, device, received) in enumerate(rounds):
        mean, report = uplink(t, {"model": x}, weights=weight, senders=device)
        assert_agree(mean["model"], received)
        assert report.participants <= 4
    counted = engine.means.take()
    np.testing.assert_allclose(uplink.totals.energy_j, counted["radio_j"][0], rtol=1e-9)
    assert uplink.totals.energy_j.sum() > 0
    for ours, name in (("symbols", "uplink_symbols"), ("bits", "uplink_bits"),
                       ("side_symbols", "side_symbols"), ("airtime_s", "airtime_s")):  # fmt: skip
        assert getattr(uplink.totals, ours) == pytest.approx(float(counted[name][0]), rel=1e-9)
    assert uplink.totals.rounds == 5


def recorded(sections: dict[str, Any]) -> tuple[Engine, list[Any]]:
    """An engine after five rounds, and for each what its devices sent, [n, P] before the codec,
    their weights and numbers, and what its server got."""
    tree = {
        "name": "x",
        "data": {"name": "digits", "train_samples": 200, "partition": {"name": "dirichlet"}},
        "model": "softmax_regression",
        "devices": {"count": 6, "participants": 4},
        "training": {"local_steps": 2, "batch_size": 5},
        "engine": {"dtype": "float64"},
        "seed": 5,
        "trials": 2,
        **sections,
    }
    engine = Engine(assemble(expand(load_scenario(tree)), [1]))
    sent: list[Any] = []
    got: list[torch.Tensor] = []
    codec = engine.parts.link.codec
    encode, combine = codec.encode, engine.parts.algorithm.update_server

    def encoding(payload: Any, memory: Any, cohort: Any, *rest: Any) -> Any:
        sent.append((payload[0].tensors["model"].clone(), cohort.weight, cohort.device))
        return encode(payload, memory, cohort, *rest)

    def combining(server: Any, received: Any, *rest: Any) -> Any:
        any_delivered = received.any_delivered is None or bool(received.any_delivered[0])
        got.append(received.mean[0]["model"][0].clone() * any_delivered)
        return combine(server, received, *rest)

    codec.encode = encoding  # type: ignore[method-assign]
    engine.parts.algorithm.update_server = combining  # type: ignore[method-assign]
    for t in range(5):
        engine.run_round(t)
    return engine, [(*a, b) for a, b in zip(sent, got, strict=True)]


def test_senders_and_their_order() -> None:
    """Rows in any order have the same channels and the same mean."""
    x, w = updates(), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    settings: dict[str, Any] = {"power": "ci", "snr_db": 10.0}
    some = np.array([4, 0, 3])
    mean, report = WirelessUplink(5, **settings)(2, x[some], w[some], senders=some)
    mask = np.array([True, False, False, True, True])
    order = [0, 3, 4]
    other, same = WirelessUplink(5, **settings)(2, x[order], w[order], senders=order)
    assert_agree(mean, other)
    assert_agree(report.energy_j, same.energy_j)
    assert report.active.tolist() == mask.tolist()
    assert (report.energy_j[~mask] == 0).all()
    turned, _ = WirelessUplink(5, **settings)(2, x[::-1], w[::-1], senders=[4, 3, 2, 1, 0])
    assert_agree(turned, WirelessUplink(5, **settings)(2, x, w)[0])
    exact, _ = WirelessUplink(5, transport="ideal")(2, x[some], w[some], senders=some)
    np.testing.assert_allclose(exact, np.average(x[some], 0, w[some]))


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def test_state_dicts() -> None:
    """A state_dict that fits the model again; whole numbers are averaged and rounded beside the
    uplink, which carries the 28 real numbers."""
    states = []
    for k in range(3):
        torch.manual_seed(k)
        model = network()
        for _ in range(10 * k + 3):
            model(torch.randn(4, 3))
        states.append({name: value.detach() for name, value in model.state_dict().items()})
    assert states[1]["1.num_batches_tracked"] == 13
    uplink = WirelessUplink(3, channel="awgn", snr_db=200.0)
    mean, report = uplink(0, states, weights=[0.2, 0.5, 0.3])
    network().load_state_dict(mean)
    assert list(mean) == list(states[0])
    assert mean["1.num_batches_tracked"].dtype == torch.int64
    assert mean["1.num_batches_tracked"].item() == 14  # 0.2 * 3 + 0.5 * 13 + 0.3 * 23 = 14.0
    assert report.symbols == 12 + 4 + 4 * 4
    for name, value in mean.items():
        exact = sum(w * s[name].double() for w, s in zip((0.2, 0.5, 0.3), states, strict=True))
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=1e-4)


def test_each_update_of_a_digital_uplink() -> None:
    """In the order that was given, with its own losses."""
    x = updates("float32")
    settings: dict[str, Any] = {"transport": "digital", "codec": {"name": "uniform", "bits": 8}}
    uplink = WirelessUplink(8, csi={"name": "error", "variance": 0.5}, seed=2, **settings)
    assert uplink.has_per_device
    places, lost = [6, 1, 7, 0, 3], 0
    for t in range(6):
        delivery = uplink.deliver(t, x, senders=places)
        assert delivery.per_device is not None
        came = [one for one in delivery.per_device if one is not None]
        lost += 5 - len(came)
        assert delivery.report.participants == len(came)
        if came:
            np.testing.assert_allclose(np.mean(came, 0), delivery.mean, rtol=1e-4, atol=1e-6)
        else:
            assert (delivery.mean == 0).all()
        for k, one in enumerate(delivery.per_device):
            if one is not None:
                assert 0 < np.abs(one - x[k]).max() < 0.05
    assert 5 < lost < 25
    assert not WirelessUplink(8).has_per_device
    assert WirelessUplink(5).deliver(0, x).per_device is None


LOOP: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"round": -1}, "WirelessUplink: round must be a whole number from 0 on; got -1"),
    ({"trial": 0.5}, {}, "WirelessUplink: trial must be a whole number from 0 on; got 0.5"),
    ({"devices": 0}, {}, "devices.count: got 0"),
    ({"devices": 8}, {}, "WirelessUplink: got 5 updates of 8 devices; say which by senders"),
    ({}, {"senders": [0, 1, 2, 3, 3]}, "senders must be the device of each of the 5 updates"),
    ({}, {"senders": [False] * 5}, "different whole numbers from 0 to 4"),
    ({}, {"updates": [{"a": X[0]}, {"b": X[0]}]}, "update 1 and update 0 do not both have 'a'"),
    ({}, {"updates": [{"a": X[0]}, {"a": X[0, 0]}]}, "'a' has shape [4] in update 1 and [3, 4]"),
    ({}, {"updates": {"n": X.astype(int)}}, "none of 'n' has real numbers; there is nothing to s"),
    ({}, {"updates": {"a": X + 1j}},
     "'a' has dtype torch.complex128 and shape [5, 3, 4]; expected a floating-point array"),
]  # fmt: skip


def test_what_a_loop_cannot_ask_for() -> None:
    unsaid = {}
    for made, called, says in LOOP:
        try:
            WirelessUplink(**{"devices": 5, **made})(**{"round": 0, "updates": X, **called})
        except UserError as error:
            if says in str(error):
                continue
            unsaid[says] = str(error)
        else:
            unsaid[says] = "accepted"
    assert unsaid == {}


def test_updates_are_of_one_model() -> None:
    uplink = WirelessUplink(5)
    uplink(0, X)
    says = "'updates' is float64 [4] on cpu, and in the first call was float64 [3, 4] on c"
    with pytest.raises(UserError, match=re.escape(says)):
        uplink(1, X[:, 0])
    assert uplink.totals.rounds == 1
