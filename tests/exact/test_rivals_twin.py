"""Methods for heterogeneous devices against looped twins: two trials of different rates, five
devices of unequal shares, some with fewer samples than a minibatch; a round of all and two of some,
so that absent devices and the state between rounds count.

Mutations that must fail: fedprox: the penalty's centre the model itself, the gradient step not
divided by 1 - s, one trial's penalty for all. scaffold: c - c_i with the other sign or unscaled by
the rate, c_i+ without - c (option II), or not divided by K or by eta_l, c moved by the mean without
the share that was there, or by the share of devices, eta_g on c. ditto: v pulled to the trained w,
a penalty of 1, v stepping by the other rate, v starting anew each round. apfl: alpha left out of
v's gradient, w after its step in the mixture, alpha adapted at every step, or by the gradient at w,
not kept in 0 to 1, the new alpha in v's first step, one trial's w in the view. fedrep: the body
stepping with the head, heads trained after the body, on the body's minibatches, the head left free
in the body's steps, by the body's rate. fedbn: norms anew each round, or not trained, or sent.
server_learning_rate ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.rival_rounds import (
    CLASSES,
    INPUTS,
    Round,
    Rounds,
    arrays,
    batches,
    losses,
    members,
    shares,
)
from twins import rivals as twin
from twins.network import Array
from twins.setting import mlp

from otafl.models.base import unflatten
from otafl.models.module import ModuleModel

WIDTHS = (INPUTS, 8, 5, CLASSES)
MODEL = mlp(WIDTHS)
WHO: list[list[list[int]] | None] = [None, [[0, 2, 3], [1, 4]], [[1, 2], [0, 3, 4]]]
"""Devices of each trial, round by round."""

RATE, OWN, SERVER = [0.3, 0.05], [0.1, 0.4], [1.0, 0.7]
RATES = {"learning_rate": RATE, "server_learning_rate": SERVER}


def server(rounds: Rounds, s: int, block: str = "model") -> list[Array]:
    """The server's model of a trial as a list."""
    return arrays(MODEL, unflatten(rounds.server[block], MODEL.shapes), s)


def device(rounds: Rounds, s: int, k: int, prefix: str = "personal.") -> list[Array]:
    """A device's kept arrays."""
    own = {n.removeprefix(prefix): b for n, b in rounds.devices.items() if n.startswith(prefix)}
    return arrays(MODEL, own, (s, k))


def close(ours: list[Array], theirs: list[Array]) -> None:
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def stepped(old: list[Array], mean: list[Array], server_rate: float) -> list[Array]:
    return twin.plus(old, twin.plus(mean, old, -1.0), server_rate)


def test_fedprox() -> None:
    penalty = [0.5, 3.0]
    ours = Rounds("fedprox", MODEL, penalty=penalty, **RATES)
    w = [server(ours, s) for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            mean, loss = twin.fedprox(w[s], batches(one, s), shares(one, s), RATE[s], penalty[s])
            w[s] = stepped(w[s], mean, SERVER[s])
            close(server(ours, s), w[s])
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)


def test_scaffold() -> None:
    ours = Rounds("scaffold", MODEL, **RATES)
    x = [server(ours, s) for s in range(2)]
    c = [[0.0 * a for a in x[s]] for s in range(2)]
    own = [[c[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            there = members(one, s)
            x[s], c[s], new, loss = twin.scaffold(
                x[s],
                c[s],
                [own[s][k] for k in there],
                batches(one, s),
                shares(one, s),
                RATE[s],
                SERVER[s],
            )
            for k, control in zip(there, new, strict=True):
                own[s][k] = control
            close(server(ours, s), x[s])
            close(server(ours, s, "control"), c[s])
            for k in range(5):
                flat = unflatten(ours.devices["control"].flatten(0, 1), MODEL.shapes)
                close(arrays(MODEL, flat, 5 * s + k), own[s][k])
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)
    weight = ours.all.weight.view(2, 5, 1)
    balance = (weight * ours.devices["control"]).sum(1)
    torch.testing.assert_close(balance, ours.server["control"], rtol=0, atol=1e-12)


def test_ditto() -> None:
    penalty = [0.5, 2.0]
    ours = Rounds("ditto", MODEL, penalty=penalty, personal_learning_rate=OWN, **RATES)
    w = [server(ours, s) for s in range(2)]
    v = [[w[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            there = members(one, s)
            mean, new, loss = twin.ditto(
                w[s],
                [v[s][k] for k in there],
                batches(one, s),
                shares(one, s),
                RATE[s],
                OWN[s],
                penalty[s],
            )
            w[s] = stepped(w[s], mean, SERVER[s])
            for k, params in zip(there, new, strict=True):
                v[s][k] = params
            close(server(ours, s), w[s])
            for k in range(5):
                close(device(ours, s, k), v[s][k])
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("rate", [OWN, [3.0, 2.0]])
def test_apfl(adaptive: bool, rate: list[float]) -> None:
    """Also with steps so large that alpha is cut off."""
    mixing = [0.3, 0.9]
    ours = Rounds(
        "apfl",
        MODEL,
        {"adaptive": adaptive},
        personal_learning_rate=rate,
        mixing=mixing,
        **RATES,
    )
    w = [server(ours, s) for s in range(2)]
    v = [[w[s]] * 5 for s in range(2)]
    alpha = [[mixing[s]] * 5 for s in range(2)]
    seen = []
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            there = members(one, s)
            mean, new, alphas, loss = twin.apfl(
                w[s],
                [v[s][k] for k in there],
                [alpha[s][k] for k in there],
                batches(one, s),
                shares(one, s),
                RATE[s],
                rate[s],
                adaptive,
            )
            w[s] = stepped(w[s], mean, SERVER[s])
            for k, params, share in zip(there, new, alphas, strict=True):
                v[s][k], alpha[s][k] = params, share
            close(server(ours, s), w[s])
            for k in range(5):
                close(device(ours, s, k), v[s][k])
            np.testing.assert_allclose(ours.devices["mixing"][s], alpha[s], rtol=0, atol=1e-12)
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)
            seen += alpha[s]
    personal = ours.method.views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            share = alpha[s][k]
            mixed = twin.plus([share * a for a in v[s][k]], w[s], 1.0 - share)
            close(arrays(MODEL, personal, 5 * s + k), mixed)
    if adaptive and rate is not OWN:
        assert {0.0, 1.0} & set(seen)
    assert (len(set(seen)) > 2) == adaptive


@pytest.mark.parametrize("factor", [1, 2])
def test_fedrep(factor: int) -> None:
    ours = Rounds("fedrep", MODEL, {"head_factor": factor}, personal_learning_rate=OWN, **RATES)
    body_at, head_at = (0, 1, 3, 4), (2, 5)
    shapes = {n: shape for n, shape in MODEL.shapes.items() if n not in ("weight2", "bias2")}
    assert ours.server["model"].shape == (2, sum(np.prod(shape) for shape in shapes.values()))

    def body_of(s: int) -> dict[int, Array]:
        params = arrays(MODEL, unflatten(ours.server["model"], shapes), s)
        return dict(zip(body_at, params, strict=True))

    body = [body_of(s) for s in range(2)]
    heads = [
        [dict(zip(head_at, device(ours, s, k), strict=True)) for k in range(5)] for s in (0, 1)
    ]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        for s in range(2):
            there = members(one, s)
            for_heads = [batches(one, s, draw) for draw in range(1, factor + 1)]
            mean, new, loss = twin.fedrep(
                body[s],
                [heads[s][k] for k in there],
                [[b for part in parts for b in part] for parts in zip(*for_heads, strict=True)],
                batches(one, s),
                shares(one, s),
                RATE[s],
                OWN[s],
            )
            moved = stepped(list(body[s].values()), list(mean.values()), SERVER[s])
            body[s] = dict(zip(body_at, moved, strict=True))
            for k, head in zip(there, new, strict=True):
                heads[s][k] = head
            close(list(body_of(s).values()), list(body[s].values()))
            for k in range(5):
                close(device(ours, s, k), list(heads[s][k].values()))
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-12)
    personal = ours.method.views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            both = body[s] | heads[s][k]
            close(arrays(MODEL, personal, 5 * s + k), [both[i] for i in range(6)])


def normed() -> ModuleModel:
    layers: list[Any] = [
        torch.nn.Linear(INPUTS, 4),
        torch.nn.LayerNorm(4),
        torch.nn.ReLU(),
        torch.nn.Linear(4, CLASSES),
    ]
    return ModuleModel(torch.nn.Sequential(*layers).double(), (INPUTS,), CLASSES)


def test_fedbn() -> None:
    model = normed()
    ours = Rounds("fedbn", model, **RATES)
    names = list(model.shapes)
    kept = (2, 3)
    assert [names[i] for i in kept] == ["1.weight", "1.bias"] == list(model.norms)
    sent = {n: shape for n, shape in model.shapes.items() if n not in model.norms}

    def model_of(s: int) -> list[Array]:
        shared = unflatten(ours.server["model"], sent)
        norms = {"1.weight": np.ones(4), "1.bias": np.zeros(4)}  # as the module starts
        return [shared[n][s].numpy().copy() if n in shared else norms[n] for n in names]

    def norms_of(s: int, k: int) -> list[Array]:
        return [ours.devices[f"personal.{n}"][s, k].numpy().copy() for n in model.norms]

    w = [model_of(s) for s in range(2)]
    norms = [[norms_of(s, k) for k in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.round(t, who)
        assert {g.reals for g in one.payload} == {model.size - 8}
        for s in range(2):
            there = members(one, s)
            mean, new, loss = twin.fedbn(
                w[s],
                kept,
                [norms[s][k] for k in there],
                batches(one, s),
                shares(one, s),
                RATE[s],
            )
            w[s] = stepped(w[s], mean, SERVER[s])
            for k, arrays_of in zip(there, new, strict=True):
                norms[s][k] = arrays_of
            close(model_of(s), w[s])
            for k in range(5):
                close(norms_of(s, k), norms[s][k])
            np.testing.assert_allclose(losses(one, s), loss, rtol=1e-10)
    personal = ours.method.views(ours.server, ours.devices)["personal"].params
    for s in range(2):
        for k in range(5):
            for name, array in zip(model.norms, norms[s][k], strict=True):
                np.testing.assert_allclose(personal[name][5 * s + k], array, rtol=0, atol=1e-12)
            np.testing.assert_allclose(personal["0.weight"][5 * s + k], w[s][0], atol=1e-12)


def test_local_only() -> None:
    ours = Rounds("local_only", MODEL, personal_learning_rate=OWN)
    assert ours.server == {}
    v = [[device(ours, s, k) for k in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one: Round = ours.round(t, who)
        assert one.payload == ()
        for s in range(2):
            for k, own, loss in zip(members(one, s), batches(one, s), losses(one, s), strict=True):
                v[s][k], expected = twin.sgd(v[s][k], own, OWN[s])
                np.testing.assert_allclose(loss, expected, rtol=1e-12)
            for k in range(5):
                close(device(ours, s, k), v[s][k])
