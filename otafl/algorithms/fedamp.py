"""Draw each device to a mixture of all models, in which those like its own weigh most (FedAMP).

Federated attentive message passing. The server keeps the model w_i of each device and mixes a cloud
model for each,

    u_i = sum_j xi_ij w_j,   xi_ij = alpha_k A'(|w_i - w_j|^2) for j != i,   sum_j xi_ij = 1,
    w_i = argmin_w F_i(w) + lambda / (2 alpha_k) |w - u_i|^2,

A(x) = 1 - exp(-x / sigma), the second solved by a few gradient steps on each minibatch, from the
device's model. A' is at most 1 / sigma, so alpha_k = attention sigma / K keeps all weights positive
whatever the models are. HeurFedAMP, `weights: cosine`, the authors' heuristic for deep networks,
takes xi_ij in proportion to exp(cosine_scale cos(w_i, w_j)), and xi_ii as it is set.

Sent is the model itself, which the server keeps: an increment to a mixture of the round would be
added to the wrong one where it arrives late. Of a device that was never heard the server knows the
start, which is its model.

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
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Needs, Outcome, declare_penalty
from otafl.algorithms.deliveries import get_delivered
from otafl.algorithms.device_tables import update_table
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


class FedAMP(Algorithm):
    """Keeps server blocks "models" [S, K, P], of each device the last that came, and "cloud"
    [S, K, P], the mixtures u_i; device blocks "personal.<name>": w_i."""

    private_state: ClassVar[str] = (
        "the personal model: it is trained for the device, from what it received"
    )
    per_device_state: ClassVar[tuple[str, ...]] = ("models",)

    needs: ClassVar[Needs] = "each"
    supports_merging: ClassVar[bool] = False

    device_models = ("personal",)

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"transport.name": "digital"}

        name: Literal["fedamp"] = "fedamp"
        learning_rate: float = declare_stackable(0.01, gt=0)
        """SGD step of a device's model"""
        penalty: float = declare_penalty(
            15.0,
            "lambda / alpha_k: the local loss has half of it times |w - u|^2 added, u the mixture",
        )
        prox_steps: int = Field(5, ge=1)
        """gradient steps on each minibatch"""
        weights: Literal["kernel", "cosine"] = "kernel"
        """weights of the others' models: exp(-|w_i - w_j|^2 / sigma) (FedAMP), or exp(cosine_scale
        cos(w_i, w_j)), normalised (HeurFedAMP)"""
        sigma: float = declare_stackable(0.1, gt=0)
        """scale of the squared distance between models; weights: kernel"""
        attention: float = declare_stackable(1.0, ge=0, le=1)
        """alpha_k K / sigma: 1 is the largest that keeps all weights positive, by which equal
        models get equal weights; 0 is a device alone; weights: kernel"""
        cosine_scale: float = declare_stackable(1.0, ge=0)
        """HeurFedAMP's sigma, factor on the cosine; weights: cosine"""
        self_weight: float = declare_stackable(0.5, ge=0, le=1)
        """xi_ii, weight of a device's own model; weights: cosine"""

    flops_per_param_round = 0.0  # the model itself is sent

    @property
    def flops_per_param_step(self) -> float:
        """Count those of a gradient step under a penalty, as often as there are."""
        return PENALISED * self.settings.prox_steps

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        """Return False: devices send their models."""
        return False

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
            theta, first = take_gradient_steps(
                span, span.origin, centre, rate, weight, self.settings.prox_steps
            )
            span.write_(theta, w)
            loss += first
        params = form.to_params(w)
        return add_prefix("personal", params), build_model_payload(params), loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        each, delivered = get_delivered(received, 0)
        models = update_table(server["models"], each[c.MODEL], delivered, context.cohort)
        return {
            "models": models,
            "cloud": torch.bmm(self.compute_mixing_weights(models, context.hyper), models),
        }

    def compute_mixing_weights(self, models: Tensor, hyper: c.Hyper) -> Tensor:
        """Return xi [S, K, K] for models [S, K, P]."""
        if self.settings.weights == "kernel":
            others = compute_kernel_weights(models, hyper["sigma"], hyper["attention"])
        else:
            others = compute_cosine_weights(models, hyper["cosine_scale"], hyper["self_weight"])
        return others + torch.diag_embed(1.0 - others.sum(2))  # the weights sum to one

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        gradients = workload.num_steps * (self.settings.prox_steps - 1)  # beside one a step
        return super().count_flops(workload) + gradients * self.model.count_training_flops(
            workload.effective_batch_size
        )


def compute_kernel_weights(models: Tensor, sigma: Tensor, attention: Tensor) -> Tensor:
    """Return FedAMP's xi_ij [S, K, K] for j != i, 0 on the diagonal."""
    centred = models - models.mean(1, keepdim=True)  # or small distances drown in large norms
    gram = torch.bmm(centred, centred.mT)
    square = gram.diagonal(dim1=1, dim2=2)
    distance = (square[:, :, None] + square[:, None, :] - 2.0 * gram).clamp_min_(0.0)
    weights = distance.div_(-sigma[:, None, None]).exp_()  # sigma A'(|w_i - w_j|^2)
    weights.mul_(attention[:, None, None] / models.shape[1])
    weights.diagonal(dim1=1, dim2=2).zero_()
    return weights


def compute_cosine_weights(models: Tensor, scale: Tensor, self_weight: Tensor) -> Tensor:
    """Return HeurFedAMP's xi_ij [S, K, K] for j != i, 0 on the diagonal."""
    tiny = torch.finfo(models.dtype).tiny
    unit = models / torch.linalg.vector_norm(models, dim=2, keepdim=True).clamp_min(tiny)
    scores = torch.bmm(unit, unit.mT).mul_(scale[:, None, None])
    scores.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    if models.shape[1] == 1:
        return torch.zeros_like(scores)
    return torch.softmax(scores, 2).mul_(1.0 - self_weight[:, None, None])
