"""What devices keep agrees with what the server has received, whatever is lost on the way.

Sums that are conserved, exact but for rounding and a noise of -200 dB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract.small import engine
from torch import Tensor

from otafl.core.contracts import Cohort, Payload
from otafl.engine.engine import Engine
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

ROUNDS = 6
TOLERANCE = 1e-7
"""Of the largest number that is compared."""

BASE: dict[str, Any] = {
    "engine.dtype": "float64",
    "channel": {"name": "rayleigh", "snr_db": 200.0},
    "power": "ci",
}
TCI = {"power": {"name": "tci", "threshold": 0.5}}
DIGITAL = {"transport": "digital", "channel": {"name": "rayleigh", "snr_db": 10.0}}
BLOCKS = {"channel": {"name": "rayleigh", "snr_db": 200.0, "block_symbols": 70}}
QUADRATURE = {"transport": {"name": "over_the_air", "quadrature": True}}
CRASH = {"faults": {"crash_probability": 0.5}}
SLOW = {"devices.compute": {"name": "lognormal", "median_flops_per_s": 1e6, "sigma": 1.0}}
# work takes 0.23 and 0.92 mJ of the first two, too much of the others; little is left the second
ENERGY = {
    "devices.compute": {
        "name": "classes",
        "classes": [
            {"flops_per_s": speed, "kappa": 1e-22, "circuit_w": 0.02}
            for speed in (1e8, 2e8, 4e8, 8e8)
        ],
    },
    "devices.round_budget_j": 9.275e-4,
}
OF_FEDAVG = {"devices.round_budget_j": 7.919e-4}
"""The same, for work of 0.197 and 0.787 mJ."""

LOSSES: dict[str, dict[str, Any]] = {
    "silenced in blocks, two reals a symbol": TCI | BLOCKS | QUADRATURE,
    "outage": DIGITAL | {"csi": {"name": "error", "variance": 0.05}},
    "crashed packets": DIGITAL | CRASH,
    "crashes over the air": CRASH,
    "late and silenced": TCI | SLOW | {"devices.deadline_s": 0.015, "devices.late": "next"},
    "gone while at work": SLOW
    | {
        "devices.deadline_s": 0.01,
        "devices.late": "next",
        "devices.availability": {"name": "markov", "mean_on_s": 0.03, "mean_off_s": 0.01},
    },
    "no energy for the packet": DIGITAL | ENERGY,
    "no energy for the slot": ENERGY,
}
"""Name -> a scenario in which some updates, or parts of them, do not reach the server."""

FEWER: dict[str, dict[str, Any]] = {
    "participants": {"devices.participants": 2},
    "senders": TCI | {"devices.senders": 2},
    "packets sent twice": DIGITAL | {"faults": {"byzantine": 2, "attack": "duplicate"}},
    "refused": {"faults": {"byzantine": 2, "attack": "nan"}},
}
"""Name -> a scenario in which some devices do not send, or send more."""


def share(one: Engine) -> Tensor:
    """p [S, K, 1]."""
    return (one.sample_share / one.sample_share.sum(1, keepdim=True))[..., None]


def off(one: Tensor, other: Tensor) -> float:
    """The largest difference over the largest number."""
    return float((one - other).abs().max() / other.abs().max())


def memory(one: Engine, name: str) -> Tensor:
    """What the codecs of all devices remember, [S * K, P]."""
    return one.memory.get_all()[name].flatten(0, 1)


def control_is_off(keys: dict[str, Any]) -> float:
    """How far c is from sum_i p_i c_i at most, over rounds of SCAFFOLD."""
    one, worst = engine(BASE | keys | {"algorithm": "scaffold"}), 0.0
    for t in range(ROUNDS):
        one.run_round(t)
        total = (share(one) * one.devices.get_all()["control"]).sum(1)
        if total.abs().max() > 0:
            worst = max(worst, off(one.server["control"], total))
    assert one.devices.get_all()["control"].abs().max() > 0
    return worst


def find_off(measure: Callable[[dict[str, Any]], float]) -> list[str]:
    """List the scenarios in which a sum is not conserved."""
    return [name for name, keys in (LOSSES | FEWER).items() if not measure(keys) < TOLERANCE]


def test_the_servers_control_is_the_mean_of_the_devices() -> None:
    """Of SCAFFOLD, c = sum_i p_i c_i after every round: c_i moves by what was received of it."""
    assert find_off(control_is_off) == []


class Ledger:
    """Adds up beside an engine what its devices had to send, and what of it the server received:
    both [S * K, P], of a payload of one group, on its way into the codec and out of the link."""

    def __init__(self, one: Engine) -> None:
        self.engine, link = one, one.parts.link
        self.made = self.came = torch.zeros(())
        self._encode, self._carry = link.codec.encode, link.transport.transmit
        link.codec.encode = self.encode  # type: ignore[method-assign]
        link.transport.transmit = self.transmit  # type: ignore[method-assign]

    def encode(self, payload: Payload, memory: Any, cohort: Cohort, *more: Any) -> Any:
        self.made = self.made + self.table(payload[0].tensors["model"], cohort)
        return self._encode(payload, memory, cohort, *more)

    def transmit(self, delivery: Delivery) -> None:
        self._carry(delivery)
        (heard,) = delivery.report().delivered_mask_fns
        came = heard().flatten(0, 1)
        sent = self.table(delivery.payload[0].tensors["model"], delivery.cohort)
        self.came = self.came + sent * (came if came.dim() == 2 else came[:, None])

    def table(self, rows: Tensor, cohort: Cohort) -> Tensor:
        return rows.new_zeros(12, rows.shape[1]).index_add_(0, cohort.flat_index, rows)


def ledger_is_off(keys: dict[str, Any]) -> float:
    """How far what was received and what is remembered is at most from all there was to send."""
    keys = keys | {name: value for name, value in OF_FEDAVG.items() if name in keys}
    one, worst = engine(BASE | {"codec": {"name": "topk", "keep": 0.3}} | keys), 0.0
    ledger = Ledger(one)
    for t in range(ROUNDS):
        one.run_round(t)
        late = one.pending
        if late is not None:  # what is on its way is remembered until it arrives
            assert memory(one, "rest/0")[late.cohort.flat_index].abs().max() > 0
        worst = max(worst, off(ledger.came + memory(one, "rest/0"), ledger.made))
    assert ledger.came.abs().max() > 0
    return worst


def test_what_is_not_received_is_remembered() -> None:
    """Error feedback: e_{t+1} = e_t + x_t less what was received of what was sent, device by
    device and real by real."""
    assert find_off(ledger_is_off) == []
