"""Holds MOON against its looped twin: two trials of different rates, penalties and temperatures,
five devices of unequal shares, a round of all and two of some.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from contract.small import engine
from contract.small import model as make_section
from support.rival_rounds import (
    MODEL,
    RATE,
    RATES,
    SERVER,
    WHO,
    Rounds,
    assert_close,
    compute_losses,
    draw_batches,
    get_shares,
    list_members,
    read_device,
    read_server,
    take_step,
)
from torch import Tensor
from twins.network import Minibatch
from twins.rivals import Params, mean

from otafl.algorithms.baselines.moon import Moon
from otafl.core.errors import UserError
from otafl.models.ngram import NGram

pytestmark = pytest.mark.exact

MU, TAU = [1.0, 5.0], [0.5, 0.3]


def represent(params: list[Tensor], x: Tensor) -> Tensor:
    """Return R_w(x), the input of the last layer of the ReLU network; weights, then biases."""
    layers = len(params) // 2
    for weight, bias in zip(params[: layers - 1], params[layers:-1], strict=True):
        x = torch.relu(x @ weight + bias)
    return x


def similarity(one: Tensor, other: Tensor) -> Tensor:
    """Return the cosine similarity, 0 for a representation of zeros."""
    return (one @ other) / (one.norm().clamp(min=1e-8) * other.norm().clamp(min=1e-8))


def local(
    server: Params, previous: Params, batches: list[Minibatch], s: int
) -> tuple[Params, float]:
    """Return the device's model and mean supervised loss (Algorithm 1, PartyLocalTraining)."""
    w, losses = [torch.tensor(a, requires_grad=True) for a in server], []
    given, before = ([torch.tensor(a) for a in params] for params in (server, previous))
    for batch in batches:
        supervised, contrastive = torch.zeros(()), torch.zeros(())
        for x, y, share in zip(torch.tensor(batch.x), batch.y, batch.weight, strict=True):
            z, z_glob, z_prev = (represent(params, x) for params in (w, given, before))
            scores = z @ w[len(w) // 2 - 1] + w[-1]
            supervised = supervised - share * torch.log_softmax(scores, 0)[y]
            near = torch.exp(similarity(z, z_glob) / TAU[s])
            far = torch.exp(similarity(z, z_prev) / TAU[s])
            contrastive = contrastive - share * torch.log(near / (near + far))
        loss = supervised + MU[s] * contrastive
        along = torch.autograd.grad(loss, w)
        w = [(a - RATE[s] * g).detach().requires_grad_() for a, g in zip(w, along, strict=True)]
        losses.append(float(supervised.detach()))
    return [a.detach().numpy() for a in w], float(np.mean(losses))


@pytest.mark.twin
def test_moon() -> None:
    ours = Rounds("moon", MODEL, penalty=MU, temperature=TAU, **RATES)
    w = [read_server(ours, s) for s in range(2)]
    previous = [[w[s]] * 5 for s in range(2)]
    for t, who in enumerate(WHO):
        one = ours.run_round(t, who)
        for s in range(2):
            trained, losses = [], []
            for k, batches in zip(list_members(one, s), draw_batches(one, s), strict=True):
                previous[s][k], loss = local(w[s], previous[s][k], batches, s)
                trained.append(previous[s][k])
                losses.append(loss)
            w[s] = take_step(w[s], mean(trained, get_shares(one, s)), SERVER[s])
            assert_close(read_server(ours, s), w[s])
            for k in range(5):
                assert_close(read_device(ours, s, k, "previous."), previous[s][k])
            np.testing.assert_allclose(compute_losses(one, s), losses, rtol=1e-12)


def test_without_the_penalty_it_is_federated_averaging() -> None:
    first = Rounds("moon", MODEL, penalty=[0.0, 0.0], **RATES)
    second = Rounds("fedavg", MODEL, **RATES)
    for t, who in enumerate(WHO):
        first.run_round(t, who)
        second.run_round(t, who)
    assert_close(read_server(first, 0), read_server(second, 0))


@pytest.mark.parametrize("model", ["cnn", "vgg", "resnet", "transformer"])
def test_the_last_layer_maps_representations_to_scores(model: str) -> None:
    one = engine({"algorithm": "moon", "model": make_section(model), "transport": "ideal"})
    cohort, made = one.select_cohort(None, 0), one.parts.model
    batch = one.parts.samples.training_data.select_cohort(0, cohort).draw_batch(0)
    params = made.init(lambda _, shape: torch.rand(len(batch.x), *shape))
    weight, bias = (params[name] for name in made.head)
    z = one.parts.algorithm.compute_representation(params, batch)
    scores = torch.baddbmm(bias[:, None], z, weight)
    torch.testing.assert_close(scores, made.score_batch(params, batch), rtol=1e-4, atol=1e-4)
    one.run_round(0)
    one.run_round(1)
    assert math.isfinite(float(one.means.take()["train_loss"].sum()))


@pytest.mark.parametrize("model", ["softmax_regression", "contract.small:normed"])
def test_refuses_a_model_without_a_known_representation(model: str) -> None:
    said = r"'moon' needs a model of otafl with layers before a linear last one"
    with pytest.raises(UserError, match=said):
        engine({"algorithm": "moon", "model": model})


def test_refuses_sequences_of_tokens() -> None:
    """They have a representation for each position, and not one for each sample."""
    with pytest.raises(UserError, match=r"whose input represents a sample"):
        Moon(Moon.Settings(), NGram(NGram.Settings(), (6,), 5), 3)
