"""Averaging of models under a contrastive loss between representations (MOON).

The representation of a sample is the input of the model's last layer. A device trains under a loss
that pulls the representation to that of the broadcast model, and pushes it from that of its own
model of the last round in which it took part. The device keeps this model, initially the start. It
sends the increment, as in federated averaging. The paper's projection head is a hidden layer here.

References
----------
Li, He, Song 2021, "Model-Contrastive Federated Learning", Algorithm 1 and equations (3) and (4).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment,
    copy_received_params,
    get_received_params,
    run_steps,
    select_prefix,
)
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, descend_, differentiate
from otafl.models.module_model import ModuleModel

PREVIOUS = "previous"


class Moon(Algorithm):
    r"""Model-contrastive federated learning.

    The server's tensor "model" [S, P] is w^t. The device's tensors "previous.NAME" are its model
    after its last local work. It has this model whatever the uplink delivers.

    Notes
    -----
    With the representation z of a sample under the trained model, z_glob under w^t, z_prev under
    the previous model and the cosine similarity sim, a device descends the mean of

    .. math::

        l_{sup}(w; x, y) - \mu \log \frac{\exp(\mathrm{sim}(z, z_{glob}) / \tau)}
        {\exp(\mathrm{sim}(z, z_{glob}) / \tau) + \exp(\mathrm{sim}(z, z_{prev}) / \tau)}
        \quad (3), (4)

    Examples
    --------
    The page on methods shows a scenario with it.
    """

    averages_increments: ClassVar[bool] = True
    only_reads_broadcast: ClassVar[bool] = True

    device_models = (PREVIOUS,)

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["moon"] = "moon"
        penalty: float = declare_stackable(1.0, ge=0)
        """mu, weight of the contrastive loss; 1, 5 or 10 in the paper"""
        temperature: float = declare_stackable(0.5, gt=0)
        """tau, divisor of the similarities; 0.5 in the paper"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        shapes = [model.shapes[name] for name in model.head]
        is_linear = len(shapes) == 2 and shapes[1] == shapes[0][1:]
        is_linear = is_linear and len(model.shapes) > 2 and not isinstance(model, ModuleModel)
        if model.scores_positions or not is_linear:
            raise UserError(
                "algorithm.name: 'moon' needs a model of otafl with layers before a linear last "
                "one, whose input represents a sample; use mlp with hidden layers, or cnn"
            )
        self.weight, self.bias = model.head

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps, and two more forward passes with the contrastive loss of each sample.

        The loss has the products and squares of three representations, and its gradient two sums.
        """
        contrast = 18.0 * self.model.shapes[self.weight][0]
        samples = workload.num_steps * workload.effective_batch_size
        passes = 2.0 * self.model.count_forward_flops(samples)
        return self.count_step_flops(workload) + passes + contrast * samples

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        anchors = get_received_params(broadcast, self.model), select_prefix(devices, PREVIOUS)
        params = copy_received_params(broadcast, self.model)
        rate = context.gather_hyper("learning_rate")
        mu, tau = context.gather_hyper("penalty"), context.gather_hyper("temperature")[:, None]

        def take_step_(batch: c.Batch) -> Tensor:
            fixed = [self.compute_representation(one, batch) for one in anchors]

            def compute_objective(leaves: c.Tensors, batch: c.Batch) -> tuple[Tensor, Tensor]:
                z = self.compute_representation(leaves, batch)
                scores = torch.baddbmm(leaves[self.bias][:, None], z, leaves[self.weight])
                loss = self.model.loss.compute_mean(scores, batch)
                near, far = (functional.cosine_similarity(z, one.clone(), -1) for one in fixed)
                contrast = functional.softplus((far - near) / tau.clone())  # eq. (3)
                share = 1.0 / contrast.shape[1] if batch.weight is None else batch.weight
                return loss, loss + mu.clone() * (contrast * share).sum(1)  # eq. (4)

            loss, grads = differentiate(compute_objective, params, batch)
            descend_(params, grads, rate)
            return loss

        loss = run_steps(context, take_step_)
        sent = build_increment(params, broadcast, self.model.shapes)
        return add_prefix(PREVIOUS, params), sent, loss

    def compute_representation(self, params: c.Tensors, batch: c.Batch) -> Tensor:
        """Compute the inputs z [n, B, M] of the last layer."""
        head = self.model.make_identity_head(params[self.bias])
        return self.model.score_batch(params | head, batch)
