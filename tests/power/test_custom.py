"""A policy of the user's own, and what is said of a wrong one."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.power_links import make_link, perturb, solve
from support.refusals import assert_refused

import otafl
from otafl.core.contracts import Coefficients, Link
from otafl.core.errors import UserError
from otafl.power.base import PowerPolicy
from otafl.power.custom import CustomPower
from otafl.running.stack_run import Checkpoint, run_stack
from otafl.scenario.loading import load_points

pytestmark = pytest.mark.exact

MODULE = '''
import torch
from otafl.core.contracts import Coefficients
from otafl.core.settings import declare_stackable
from otafl.power.base import PowerPolicy, align_with_mmse_scaling, compute_amplitude_bound

class Queue(PowerPolicy):
    """Full power, and silence while a virtual queue of the spent slots is not empty."""

    average: float = declare_stackable(0.5, gt=0, le=1)
    factor: float = 1.0

    def prepare(self, statistics, hyper):
        return torch.zeros_like(statistics.budget)

    def compute_coefficients(self, state, link):
        active = link.eligible_mask & (state <= 0)[:, None]
        amplitude = torch.where(active, self.factor * compute_amplitude_bound(link), 0.0)
        queue = (state + active.any(1).float() - link.hyper["average"][:, None]).clamp_min(0)
        queue = torch.where(link.transmit_mask, queue, state)
        return queue, align_with_mmse_scaling(link, amplitude, active)

class Unfinished(PowerPolicy):
    pass

class Pair(Queue):
    def compute_coefficients(self, state, link):
        return state, amplitudes(link)

class Falling:
    """Power that falls with its calls, as round by round the equal power of `link.round` does."""

    def __init__(self):
        self.calls, self.shares = 0, []

    def __call__(self, link):
        assert link.round == self.calls
        self.calls += 1
        self.shares.append(1.0 / self.calls)
        return amplitudes(link)[0] * sum(self.shares) / self.calls, amplitudes(link)[1]

falling = Falling()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, link):
        self.calls += 1
        return amplitudes(link)[0] / self.calls, amplitudes(link)[1]

net = Net()

def sums(link, share=1.0, trial=0):
    """The power of all participants on the second device, and that times a share in one trial."""
    p = torch.zeros_like(link.h)
    whole = (link.budget * link.transmit_mask).sum(-1)[:, None]
    whole[trial] *= share
    p[..., 1] = (whole / link.symbol_power[..., 1]).sqrt()
    return p, torch.ones(link.h.shape[:2])

sums.constraint = "sum"

def level(link, share=1.0):
    """Each segment of a payload at full power."""
    p = (share * link.budget[:, None] / link.segment_power).sqrt()
    return p * torch.conj(torch.sgn(link.h)), torch.ones(link.h.shape[:2])

level.needs_segment_power = True

def stretches(draw, subcarrier_groups=5):
    return draw.draw_complex_normal(1, subcarrier_groups)

def share(link, part=1.0, factor=1.0):
    """A part of full power, and the noise-free scaling of the first device."""
    bound = (link.budget[:, None] / link.symbol_power).sqrt() * part**0.5
    p = factor * bound * torch.conj(torch.sgn(link.h))
    return p, (p * link.h).real.square().mean(-1)

def amplitudes(link):
    return (link.budget[:, None] / link.symbol_power).sqrt(), torch.ones(link.h.shape[:2])

def long_term(link):
    return 2.0 * amplitudes(link)[0], amplitudes(link)[1]

long_term.constraint = "average"

def uses_variation(link):
    return amplitudes(link)[0] * link.variation[..., None].clamp_max(1.0), amplitudes(link)[1]

uses_variation.needs_variation = True

def odd(link): return amplitudes(link)
odd.constraint = "sometimes"

def one_tensor(link): return link.h
def swapped(link): return amplitudes(link)[::-1]
def not_a_number(link): return amplitudes(link)[0] * float("nan"), amplitudes(link)[1]
def nothing_received(link): return amplitudes(link)[0], 0.0 * amplitudes(link)[1]
'''


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def own(function: str, **options: object) -> PowerPolicy:
    return CustomPower(name=f"my_own_policies:{function}", **options).build()


def run(function: str, link: Link | None = None, **options: object) -> Coefficients:
    return solve(own(function, **options), make_link(1) if link is None else link)


def test_it_is_called_with_the_link_and_its_options() -> None:
    link = make_link(1)
    got = run("share", link, part=0.25)
    used = got.p.abs().square() * link.symbol_power / link.budget[:, None]
    there = link.transmit_mask[:, None].expand_as(used)
    torch.testing.assert_close(used, 0.25 * there.double())
    assert torch.equal(got.active_mask, there)
    assert own("share").power_constraint == "peak"
    assert own("share").may_be_silent
    assert not own("share").needs_variation
    assert got.eta.shape == link.h.shape[:2]


def test_attributes_of_the_function() -> None:
    got = run("long_term")  # four times the budget
    assert own("long_term").power_constraint == "average"
    assert got.p.abs().max() > 0
    link = perturb(make_link(1), variation=torch.tensor([[0.5, 2.0]]).expand(3, 2))
    policy = own("uses_variation")
    assert policy.needs_variation
    used = solve(policy, link).p.abs().square() * link.symbol_power / link.budget[:, None]
    assert used[:, 0].max() == pytest.approx(0.25)
    assert used[:, 1].max() == pytest.approx(1.0)


def test_what_is_wrong_is_said() -> None:
    cases = [
        ("share", {"factor": 1.1}, "at trial 0, segment 0, device 0 of the stack, a power |p|^2 m"
         " of 1.21 times the budget; scale p by (link.budget[:, None] / link.symbol_power).sqrt()"),
        ("one_tensor", {}, "returned a Tensor; expected the tensors (p, eta) of shapes (3, 2, 6) "
         "and (3, 2)"),
        ("swapped", {}, "returned tensors of shapes (3, 2), (3, 2, 6); expected the tensors"),
        ("not_a_number", {}, "at trial 0, segment 0, device 0 of the stack, a p that is not fini"),
        ("nothing_received", {}, "at trial 0, segment 0 of the stack, an eta that is not a posit"),
        ("odd", {}, "'my_own_policies:odd' has the power constraint 'sometimes'; expected "),
        ("sums", {"share": 1.1}, "at trial 0, segment 0 of the stack, a power |p|^2 m of 1.1 times "
         "the participants' budgets together"),
        ("Queue", {"factor": 1.1}, "returned at trial 0, segment 0, device 0 of the stack, a power "
         "|p|^2 m of 1.21 times the budget"),
        ("Pair", {}, "compute_coefficients of 'my_own_policies:Pair' returned a tuple; expected a "
         "Coefficients"),
        ("Falling", {}, "'my_own_policies:Falling' is no power policy; derive the class from one, "
         "like otafl.power.equal_power."),
        ("Unfinished", {}, "has no compute_coefficients; derive it from a power policy"),
        ("share", {"factr": 1}, "power.factr: unknown key of 'my_own_policies:share'; did"),
        ("absent", {}, "'absent' does not exist in module 'my_own_policies'"),
    ]  # fmt: skip
    assert_refused(run, [({"function": f, **keys}, re.escape(said)) for f, keys, said in cases])


def test_the_budget_of_the_sum_over_participants() -> None:
    policy, link = own("sums"), make_link(1)
    used = solve(policy, link).p.abs().square() * link.symbol_power
    whole = (link.budget * link.transmit_mask).sum(-1)[:, None]
    torch.testing.assert_close(used.sum(-1), whole.double().expand(-1, 2), rtol=1e-5, atol=0)
    assert bool((used[..., 1] > 1.5 * link.budget[:, 1:2]).all())  # above that of the device
    assert policy.power_constraint == "sum"
    with pytest.raises(UserError, match="at trial 2, segment 0 of the stack, a power"):
        run("sums", share=1.1, trial=2)  # two of its six devices do not take part


SCENARIO: dict[str, Any] = {
    "name": "own",
    "data": "digits",
    "model": "softmax_regression",
    "algorithm": "fedavg",
    "channel": {"name": "awgn", "snr_db": 10},
    "devices": {"count": 4},
    "training": {"rounds": 4, "local_steps": 1, "batch_size": 5, "eval_every": 1},
    "output": {"save_link": True},
}


def powers(**keys: Any) -> np.ndarray:
    """tx_power_w [..., round, device] over that of full power."""
    return otafl.run(SCENARIO | keys)["tx_power_w"].isel(round=slice(1, None)).values / 0.1


def test_every_stack_starts_with_a_fresh_object() -> None:
    sweep = {"devices.count": [4], "training.batch_size": [5, 6], "channel.snr_db": [0, 10]}
    own = importlib.import_module("my_own_policies")
    given = own.falling
    shares = np.cumsum(1 / np.arange(1, 5)) / np.arange(1, 5)
    expected = np.broadcast_to(shares[:, None] ** 2, (1, 2, 2, 2, 4, 4))
    for power in ("my_own_policies:falling", given, given.__call__, functools.partial(given)):
        found = powers(power={"name": power}, sweep=sweep, trials=2)
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert given.calls == own.net.calls == 0


def test_policies_in_a_loop_of_ones_own() -> None:
    """A class has its state, and an object is used itself, as gradients pass to it."""
    own, updates = importlib.import_module("my_own_policies"), torch.ones(2, 5)
    for power in (own.Queue, {"name": own.Queue, "average": 0.5}, "my_own_policies:Queue"):
        uplink = otafl.WirelessUplink(2, power=power, channel="awgn")
        sent = [uplink(round, updates)[1].participants for round in range(3)]
        assert sent == [2, 0, 2]
    falling = own.Falling()
    uplink = otafl.WirelessUplink(2, power=falling, channel="awgn")
    assert [uplink(round, updates)[1].participants for round in range(2)] == [2, 2]
    assert falling.calls == 2


@pytest.mark.parametrize(
    "keys",
    [{}, {"transport": "ofdm"}, {"topology": {"name": "cells", "servers": 3}}],
    ids=["one server", "ofdm", "three servers"],
)
def test_a_class_has_a_state_in_each_trial(keys: dict[str, Any]) -> None:
    """The queue of a device that does not take part stays."""
    devices = {"count": 6, "participants": 3}
    sweep = {"power.average": [0.5, 0.25]}
    given = {"power": {"name": "my_own_policies:Queue"}, "devices": devices, "sweep": sweep}
    result = otafl.run(SCENARIO | {"trials": 2} | given | keys)
    there = np.moveaxis(result["link_m_0"].values > 0, 2, 0)  # round, average, trial, ...
    sent = np.moveaxis(result["link_p_0_real"].values > 0, 2, 0)
    queue = np.zeros(there.shape[1:])
    average = np.array([0.5, 0.25]).reshape(-1, *[1] * (queue.ndim - 1))
    for present, got in zip(there, sent, strict=True):
        np.testing.assert_array_equal(got, present & (queue <= 0))
        queue = np.where(present, (queue + got - average).clip(0), queue)
    assert queue.max() > 0


@pytest.mark.parametrize("name", ["Queue", "falling", "net"])
def test_memory_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    power = f"my_own_policies:{name}"
    points = load_points(SCENARIO | {"trials": 2, "power": power})[1]

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise RuntimeError

    whole = run_stack(points).variables["tx_power_w"]
    with pytest.raises(RuntimeError):
        run_stack(points, stop, None, Checkpoint(tmp_path / "kept.pt", 2))
    again = run_stack(points, None, None, Checkpoint(tmp_path / "kept.pt", 2))
    np.testing.assert_array_equal(again.variables["tx_power_w"], whole)
    assert len(np.unique(whole.round(6))) > 2


def test_a_policy_sees_the_power_of_each_segment() -> None:
    channel = {"channel": "my_own_policies:stretches"}
    used = powers(power={"name": "my_own_policies:level"}, **channel)
    np.testing.assert_allclose(used, 1.0, rtol=1e-4)
    known, whole = (
        otafl.run(SCENARIO | channel | {"power": f"my_own_policies:{name}"}) for name in
        ("level", "share")
    )  # fmt: skip
    scalars = np.abs(known["link_p_0_real"] + 1j * known["link_p_0_imag"])
    assert float(scalars.std("segment_0").min()) > 0
    extra = (known["side_symbols"] - whole["side_symbols"]).isel(round=slice(1, None)).values
    np.testing.assert_array_equal(extra[0], 16.0 * np.arange(1, 5))  # 4 devices, 4 numbers
    with pytest.raises(UserError, match=r"1\.1 times the budget"):
        powers(power={"name": "my_own_policies:level", "share": 1.1}, **channel)


@pytest.mark.parametrize("name", ["share", "Queue"])
def test_updates_that_are_not_finite_or_zero_are_no_fault_of_the_policy(name: str) -> None:
    """The run stops the trial that diverged, and the others go on."""
    keys = {
        "model": {"name": "mlp", "hidden": [8]},
        "training": SCENARIO["training"] | {"local_steps": 20},
        "sweep": {"algorithm.learning_rate": [0.1, 1e20, 1e-30]},
    }
    ds = otafl.run(SCENARIO | keys | {"power": f"my_own_policies:{name}"})
    np.testing.assert_array_equal(ds["diverged_round"].notnull().values[:, 0], [False, True, False])
