"""Methods for heterogeneous devices: limits in which they are another method, what they send, keep
and show, and what they refuse. Their rounds are held against looped twins in test_rivals_twin.py.

Mutations that must fail: scaffold's groups joined in one, its broadcast without c, c moved as if
all had arrived, c_i of devices that do not send moved; fedrep's payload with the head, its head
gradient of other parameters; norms of some layers not found; a payload of local_only; apfl's view
of the trained w; the refusals left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.rival_rounds import CLASSES, INPUTS, Rounds, exact
from twins.setting import mlp

from otafl.algorithms.config_rivals import ApflConfig, DittoConfig, FedProxConfig
from otafl.algorithms.fedrep import head_gradients, head_of
from otafl.core import registry
from otafl.core.contracts import Batch, Blocks
from otafl.core.errors import UserError
from otafl.models.base import Model
from otafl.models.cnn import Cnn
from otafl.models.config import CnnConfig, SoftmaxRegressionConfig
from otafl.models.module import ModuleModel
from otafl.models.softmax_regression import SoftmaxRegression

F64 = torch.float64
MODEL = mlp((INPUTS, 8, 5, CLASSES))
WHO: list[list[list[int]] | None] = [None, [[0, 2, 3], [1, 4]], [[1, 2], [0, 3, 4]]]
RATES = {"learning_rate": [0.3, 0.05], "server_learning_rate": [1.0, 0.7]}
OWN = [0.1, 0.4]
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def in_step(one: Rounds, other: Rounds, same: Any) -> None:
    """Three rounds of both, compared before each and after the last."""
    for t, who in enumerate(WHO):
        same(one, other)
        one.round(t, who)
        other.round(t, who)
    same(one, other)


def same_model(one: Rounds, other: Rounds) -> None:
    assert torch.equal(one.server["model"], other.server["model"])


def same_devices(one: Rounds, other: Rounds) -> None:
    for name, block in one.devices.items():
        if name.startswith("personal."):
            assert torch.equal(block, other.devices[name]), name


@DTYPES
@pytest.mark.parametrize("name", ["fedprox", "ditto", "apfl"])
def test_the_averaged_model_is_fedavgs(name: str, dtype: torch.dtype) -> None:
    """Bit for bit: FedProx without penalty, Ditto and APFL whatever they do beside it."""
    settings = {"penalty": [0.0, 0.0]} if name == "fedprox" else {}
    one = Rounds(name, MODEL, dtype=dtype, **RATES, **settings)
    in_step(one, Rounds("fedavg", MODEL, dtype=dtype, **RATES), same_model)


def test_a_strong_penalty_holds_fedprox() -> None:
    """With s = rate penalty near 1 a device stays at its centre but for a gradient step."""
    one = Rounds("fedprox", MODEL, learning_rate=[1e-6] * 2, penalty=[0.999999e6] * 2)
    moved = one.round(0).payload[0].blocks["model"]
    assert 0 < float(moved.abs().max()) < 1e-5


@DTYPES
def test_ditto_without_penalty_trains_alone(dtype: torch.dtype) -> None:
    """Bit for bit."""
    own = {"personal_learning_rate": OWN}
    one = Rounds("ditto", MODEL, dtype=dtype, penalty=[0.0, 0.0], **own, **RATES)
    in_step(one, Rounds("local_only", MODEL, dtype=dtype, **own), same_devices)


def test_ditto_with_a_strong_penalty_follows() -> None:
    one = Rounds(
        "ditto", MODEL, penalty=[0.999999e6] * 2, personal_learning_rate=[1e-6] * 2, **RATES
    )
    one.round(0)
    received = one.server["model"].clone()
    one.round(1)
    own = {n.removeprefix("personal."): b for n, b in one.devices.items()}
    flat = torch.cat([block.flatten(2) for block in own.values()], 2)
    np.testing.assert_allclose(flat, received[:, None].expand_as(flat), rtol=0, atol=1e-5)


def test_apfl_at_the_ends() -> None:
    """alpha = 0: v does not move and the personal model is the averaged one. alpha = 1: v trains
    alone."""
    own = {"personal_learning_rate": OWN}
    none = Rounds("apfl", MODEL, {"adaptive": False}, mixing=[0.0, 0.0], **own, **RATES)
    start = {name: block.clone() for name, block in none.devices.items()}
    full = Rounds("apfl", MODEL, {"adaptive": False}, mixing=[1.0, 1.0], **own, **RATES)
    alone = Rounds("local_only", MODEL, **own)
    for t, who in enumerate(WHO):
        for one in (none, full, alone):
            one.round(t, who)
    assert all(torch.equal(block, start[name]) for name, block in none.devices.items())
    x = torch.randn(1, 4, INPUTS, generator=torch.Generator().manual_seed(0), dtype=F64)
    views = none.method.views(none.server, none.devices)
    personal, shared = (views[n].predict(views[n].params, x) for n in ("personal", "global"))
    torch.testing.assert_close(personal.view(2, 5, 4, CLASSES), shared[:, None].expand(2, 5, 4, -1))
    own_models = [o.method.views(o.server, o.devices)["personal"].params for o in (full, alone)]
    for name, block in own_models[0].items():
        np.testing.assert_allclose(block, own_models[1][name], rtol=0, atol=1e-12)


@DTYPES
def test_scaffold_starts_as_fedavg(dtype: torch.dtype) -> None:
    """Bit for bit in the first round, while all control variates are zero, and not after it."""
    one = Rounds("scaffold", MODEL, dtype=dtype, **RATES)
    other = Rounds("fedavg", MODEL, dtype=dtype, **RATES)
    for rounds in (one, other):
        rounds.round(0)
    same_model(one, other)
    for rounds in (one, other):
        rounds.round(1)
    assert not torch.equal(one.server["model"], other.server["model"])


def test_scaffold_of_single_steps_is_fedavg() -> None:
    """With one local step and all devices, sum_i p_i (c - c_i) = 0 in every round."""
    one = Rounds("scaffold", MODEL, steps=1, **RATES)
    other = Rounds("fedavg", MODEL, steps=1, **RATES)
    for t in range(4):
        one.round(t)
        other.round(t)
        np.testing.assert_allclose(one.server["model"], other.server["model"], atol=1e-12)
    assert one.server["control"].abs().amax(1).gt(1e-3).all()


def test_scaffold_sends_two_groups() -> None:
    """One by one for a transport that scales a group, and as many reals down as up."""
    one = Rounds("scaffold", MODEL, **RATES)
    rate = one.hyper["learning_rate"][one.all.trial][:, None]
    payload = one.round(0).payload
    assert [list(group.blocks) for group in payload] == [["model"], ["control"]]
    model, control = (next(iter(group.blocks.values())) for group in payload)
    np.testing.assert_allclose(control, -model / (3 * rate), rtol=1e-12)
    broadcast = one.method.broadcast(one.server, one.all)
    assert broadcast.reals == sum(group.reals for group in payload) == 2 * MODEL.size


def test_scaffold_counts_what_arrived() -> None:
    """c moves by the share of all samples that the mean is of; a device that does not send keeps
    its c_i."""
    one = Rounds("scaffold", MODEL, **RATES)
    one.round(0)
    cohort = one.all.take(torch.tensor([0, 2, 3, 6, 9]))
    cohort = replace(cohort, sends=torch.tensor([True, False, True, True, True]), all_send=False)
    control = one.devices["control"].flatten(0, 1)[cohort.cell]
    broadcast = one.method.broadcast(one.server, cohort).rows(cohort, 0, cohort.size)
    work = one.data.work(1, cohort)
    state, payload, _ = one.method.local(
        broadcast, {"control": control.clone()}, cohort, work, one.hyper, one.streams
    )
    change = payload[1].blocks["control"]
    kept = state["control"] - control
    assert kept[1].eq(0).all()
    sent = torch.tensor([0, 2, 3, 4])
    torch.testing.assert_close(kept[sent], change[sent])

    senders = cohort.take(sent)
    arrived = exact(
        tuple(replace(g, blocks={n: b[sent] for n, b in g.blocks.items()}) for g in payload),
        senders,
    )
    half = torch.tensor([1.0, 0.5], dtype=F64)
    arrived = replace(arrived, count=(half, half))
    after = one.method.combine(one.server, arrived, senders, 1, one.hyper, one.streams)
    share = torch.tensor([20 + 30, 0.5 * (9 + 40)], dtype=F64) / torch.tensor([70.0, 87.0])
    moved = after["control"] - one.server["control"]
    np.testing.assert_allclose(moved, share[:, None] * arrived.mean[1]["control"], atol=1e-12)


def some(model: Model, rows: int) -> tuple[Blocks, Batch]:
    """Normal parameters and a weighted minibatch of inputs that fit the model."""
    generator = torch.Generator().manual_seed(3)
    params = {
        name: torch.randn(rows, *shape, generator=generator, dtype=F64) / 2
        for name, shape in model.shapes.items()
    }
    x = torch.randn(rows, 4, INPUTS * INPUTS, generator=generator, dtype=F64)
    weight = torch.rand(rows, 4, generator=generator, dtype=F64)
    return params, Batch(x, torch.randint(0, CLASSES, (rows, 4), generator=generator), weight)


def test_head_gradients_are_the_models() -> None:
    cnn = Cnn(CnnConfig(channels=(2,), kernel=3, hidden=(4,)), (INPUTS, INPUTS), CLASSES)
    layers = torch.nn.Linear(INPUTS * INPUTS, 5), torch.nn.ReLU(), torch.nn.Linear(5, CLASSES)
    module = ModuleModel(torch.nn.Sequential(*layers).double(), (INPUTS * INPUTS,), CLASSES)
    for model, head in (
        (mlp((INPUTS * INPUTS, 5, CLASSES)), ("weight1", "bias1")),
        (cnn, ("weight2", "bias2")),
        (module, ("2.weight", "2.bias")),
    ):
        assert head_of(model) == head
        params, batch = some(model, 3)
        x = batch.x.view(3, 4, INPUTS, INPUTS) if model is cnn else batch.x
        batch = replace(batch, x=x)
        with torch.inference_mode():
            params = {name: block.clone() for name, block in params.items()}
            grads = head_gradients(model, params, head, batch)
            _, expected = model.gradients(params, batch)
        assert tuple(grads) == head
        for name, grad in grads.items():
            np.testing.assert_allclose(grad, expected[name], rtol=0, atol=1e-12)


def test_fedrep_sends_the_body() -> None:
    one = Rounds("fedrep", MODEL, personal_learning_rate=[0.0, 0.0], **RATES)
    start = {name: block.clone() for name, block in one.devices.items()}
    (group,) = one.round(0).payload
    assert group.reals == MODEL.size - (5 * CLASSES + CLASSES)
    assert one.method.broadcast(one.server, one.all).reals == group.reals
    assert all(torch.equal(block, start[name]) for name, block in one.devices.items())


def test_local_only_sends_nothing() -> None:
    """Over any transport: no symbol, bit, second or joule of radio, and work is still paid for."""
    for transport in registry.names("transport"):
        one = run(engine({"algorithm": "local_only", "transport": transport}), 2)
        taken = one.means.take()
        for name in ("uplink_symbols", "uplink_bits", "airtime_s", "radio_j", "participants"):
            assert taken[name].eq(0).all(), name
        assert not one.downlink_bits.any()
        assert (one.parts.clock.spent_j()[..., 0] > 0).all()


def norms(*layers: torch.nn.Module) -> tuple[str, ...]:
    module = torch.nn.Sequential(
        torch.nn.Unflatten(1, (2, 3, 3)), *layers, torch.nn.Flatten(), torch.nn.Linear(18, CLASSES)
    )
    return ModuleModel(module, (18,), CLASSES).norms


def test_norm_layers_are_found() -> None:
    assert norms(torch.nn.Conv2d(2, 2, 1)) == ()
    assert norms(torch.nn.GroupNorm(1, 2)) == ("1.weight", "1.bias")
    assert norms(torch.nn.InstanceNorm2d(2, affine=True)) == ("1.weight", "1.bias")
    assert norms(torch.nn.InstanceNorm2d(2)) == ()
    assert norms(torch.nn.BatchNorm2d(2, track_running_stats=False)) == ("1.weight", "1.bias")
    inner = torch.nn.Sequential(torch.nn.LayerNorm((3, 3), bias=False), torch.nn.RMSNorm(3))
    assert norms(inner, torch.nn.Conv2d(2, 2, 1)) == ("1.0.weight", "1.1.weight")
    assert ModuleModel(Scaled(), (4,), 4).norms == ("layer.weight", "layer.bias")
    assert MODEL.norms == ()


class Scaled(torch.nn.Module):
    """One norm layer under two names, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.layer = torch.nn.LayerNorm(4)
        self.again = self.layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.again(x)) * self.scale


def test_refusals() -> None:
    regression = SoftmaxRegression(SoftmaxRegressionConfig(), (INPUTS,), CLASSES)
    with pytest.raises(UserError, match=r"'fedrep' .* one layer alone; mlp or cnn would do"):
        Rounds("fedrep", regression)
    with pytest.raises(UserError, match=r"'fedbn' .* the model has none; .* GroupNorm"):
        Rounds("fedbn", MODEL)
    with pytest.raises(
        ValueError, match=r"personal_learning_rate times penalty .* got 0.1 times 10"
    ):
        DittoConfig(personal_learning_rate=0.1, penalty=10)
    with pytest.raises(ValueError, match=r"learning_rate times penalty must be below 1"):
        FedProxConfig(learning_rate=0.5, penalty=2)
    with pytest.raises(ValueError, match="mixing"):
        ApflConfig(mixing=1.5)


def test_views_and_operations() -> None:
    """Operations for 60 samples, in MACs of a forward pass of one."""
    macs = INPUTS * 8 + 8 * 5 + 5 * CLASSES
    shown = {
        "fedprox": ({"global"}, 6),
        "scaffold": ({"global"}, 6),
        "ditto": ({"global", "personal"}, 12),
        "apfl": ({"global", "personal"}, 12),
        "local_only": ({"personal"}, 6),
    }
    for name, (views, passes) in shown.items():
        one = Rounds(name, MODEL)
        assert set(one.method.views(one.server, one.devices)) == views
        assert one.method.flops(60) == passes * macs * 60
    rep = Rounds("fedrep", MODEL, {"head_factor": 2})
    assert set(rep.method.views(rep.server, rep.devices)) == {"personal"}
    assert rep.method.flops(60) == (6 * macs + 2 * (2 * macs + 2 * 5 * CLASSES)) * 60
