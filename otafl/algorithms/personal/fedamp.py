"""A mixture of all models for each device, in which similar models weigh most (FedAMP).

Federated attentive message passing. The server keeps the model of each device and mixes a cloud
model for each. Devices take a few gradient steps on each minibatch, under a penalty on the distance
to their cloud model. HeurFedAMP (`weights: cosine`), the authors' heuristic for deep networks,
weights the models by the cosine between them.

Devices send their models, which the server keeps. Increments relative to a cloud model of the round
would be wrong for late updates, whose cloud model has changed. For a device without a delivered
update the server knows the start, which is the device's model.

References
----------
Huang, Chu, Zhou, Wang, Liu, Pei, Zhang 2021, "Personalized Cross-Silo Federated Learning on Non-IID
    Data", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome, PayloadKind
from otafl.algorithms.deliveries import get_delivered, update_table
from otafl.algorithms.parameters import (
    add_prefix,
    build_model_payload,
    get_received_params,
    select_prefix,
)
from otafl.algorithms.prox import PENALISED, take_gradient_steps
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.span import subtract_params

PROX_STEPS = 5
"""Gradient steps on each minibatch, as in pFedMe's and pFedBreD's solvers."""


class FedAMP(Algorithm):
    r"""Federated attentive message passing, FedAMP and HeurFedAMP.

    The server's tensors are "models" [S, K, P], the last delivered model of each device, and
    "cloud" [S, K, P], the mixtures u_i. The device's tensors "personal.NAME" are w_i.

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    The cloud model of device i, with weights of sum one over j, is

    .. math::

        u_i = \sum_j \xi_{ij} w_j, \quad \xi_{ij} = \alpha_k A'(\|w_i - w_j\|^2) \ \mathrm{for} \ j
        \neq i

    with A(x) = 1 - exp(-x / sigma). The device descends, by a few gradient steps on each minibatch,

    .. math::

        F_i(w) + \frac{\lambda}{2 \alpha_k} \|w - u_i\|^2.

    A' is at most 1 / sigma, so alpha_k = attention sigma / K keeps all weights positive for any
    models. HeurFedAMP sets xi_ii, and takes the other xi_ij in proportion to exp(cosine_scale
    cos(w_i, w_j)).

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    payload: ClassVar = PayloadKind("each", is_increment=False)

    device_models = ("personal",)

    is_per_device = True

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "keeps a row for each device at the server",
    }

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedamp"] = "fedamp"
        learning_rate: float = declare_stackable(0.01, gt=0)
        """step size of SGD on a device's model"""
        penalty: float = declare_stackable(15.0, ge=0)
        """lambda / alpha_k, weight of the penalty |w - u|^2 / 2 on the distance to the mixture"""
        weights: Literal["kernel", "cosine"] = "kernel"
        """rule for the weights of other models: kernel, exp(-|w_i - w_j|^2 / sigma) (FedAMP), or
        cosine, exp(cosine_scale cos(w_i, w_j)), normalised (HeurFedAMP)"""
        sigma: float = declare_stackable(0.1, gt=0)
        """scale of the squared distance between models, with weights: kernel"""
        attention: float = declare_stackable(1.0, ge=0, le=1)
        """alpha_k K / sigma, with weights: kernel; 1 is the largest value that keeps all weights
        positive, and gives equal models equal weights; 0 is a device alone"""
        cosine_scale: float = declare_stackable(1.0, ge=0)
        """HeurFedAMP's sigma, factor of the cosine, with weights: cosine"""
        self_weight: float = declare_stackable(0.5, ge=0, le=1)
        """xi_ii, weight of a device's own model, with weights: cosine"""

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        table = server[c.MODEL][:, None].repeat(1, self.num_devices, 1)
        return {"models": table, "cloud": table.clone()}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        cloud = server["cloud"].flatten(0, 1)
        return c.Broadcast({c.MODEL: cloud[cohort.flat_index]}, per_device=True)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        rate, weight = context.gather_hyper("learning_rate"), context.gather_hyper("penalty")
        w = form.copy_params(select_prefix(devices, "personal"))
        u = form.copy_params(get_received_params(broadcast, self.model))
        pull, loss = None, torch.zeros_like(rate)
        for step in range(work.steps):
            pull = subtract_params(u, w, out=pull)
            span = form.make_span(work.draw_batch(step), w, pull)
            centre = span.origin + span.directions[0]
            theta, first = take_gradient_steps(span, span.origin, centre, rate, weight, PROX_STEPS)
            span.write_(theta, w)
            loss += first
        params = form.to_params(w)
        return add_prefix("personal", params), build_model_payload(params), loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        each, delivered_mask = get_delivered(received, 0)
        models = update_table(server["models"], each[c.MODEL], delivered_mask, context.cohort)
        return {
            "models": models,
            "cloud": torch.bmm(self.compute_mixing_weights(models, context.hyper), models),
        }

    def compute_mixing_weights(self, models: Tensor, hyper: c.Hyper) -> Tensor:
        """Compute the weights xi [S, K, K] of the models [S, K, P] in the mixtures."""
        if self.settings.weights == "kernel":
            others = compute_kernel_weights(models, hyper["sigma"], hyper["attention"])
        else:
            others = compute_cosine_weights(models, hyper["cosine_scale"], hyper["self_weight"])
        return others + torch.diag_embed(1.0 - others.sum(2))  # the weights sum to one

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the gradient steps under a penalty; the model itself is sent."""
        each = PENALISED * PROX_STEPS
        return self.count_step_flops(workload, PROX_STEPS, each, per_param_round=0.0)


def compute_kernel_weights(models: Tensor, sigma: Tensor, attention: Tensor) -> Tensor:
    """Compute FedAMP's weights xi_ij for j != i.

    Parameters
    ----------
    models : Tensor [S, K, P]
        Models of the devices.
    sigma, attention : Tensor [S]
        Scale of the squared distance, and alpha_k K / sigma.

    Returns
    -------
    Tensor [S, K, K]
        Weights, 0 on the diagonal.
    """
    centred = models - models.mean(1, keepdim=True)  # small distances cancel between large norms
    gram = torch.bmm(centred, centred.mT)
    square = gram.diagonal(dim1=1, dim2=2)
    distance = (square[:, :, None] + square[:, None, :] - 2.0 * gram).clamp_min_(0.0)
    weights = distance.div_(-sigma[:, None, None]).exp_()  # sigma A'(|w_i - w_j|^2)
    weights.mul_(attention[:, None, None] / models.shape[1])
    weights.diagonal(dim1=1, dim2=2).zero_()
    return weights


def compute_cosine_weights(models: Tensor, scale: Tensor, self_weight: Tensor) -> Tensor:
    """Compute HeurFedAMP's weights xi_ij for j != i.

    Parameters
    ----------
    models : Tensor [S, K, P]
        Models of the devices.
    scale, self_weight : Tensor [S]
        Factor of the cosine, and weight of the own model.

    Returns
    -------
    Tensor [S, K, K]
        Weights, 0 on the diagonal.
    """
    tiny = torch.finfo(models.dtype).tiny
    unit = models / torch.linalg.vector_norm(models, dim=2, keepdim=True).clamp_min(tiny)
    scores = torch.bmm(unit, unit.mT).mul_(scale[:, None, None])
    scores.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    if models.shape[1] == 1:
        return torch.zeros_like(scores)
    return torch.softmax(scores, 2).mul_(1.0 - self_weight[:, None, None])
