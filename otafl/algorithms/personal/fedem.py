"""Several shared models, mixed by each device with weights of its own (FedEM).

All devices train M models, and the server averages each. A device mixes their predictions with
weights pi_k, which it estimates by expectation maximisation and never sends. The personal model is
the mixture of the averaged models with the device's weights of its last round. The global model is
the mixture with the mean of all devices' weights, a diagnostic.

References
----------
Marfoq, Neglia, Bellet, Kameni, Vidal 2021, "Federated Multi-Task Learning under a Mixture of
    Distributions", Algorithm 1 and section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, Views
from otafl.algorithms.parameters import draw_start, make_draw
from otafl.core import contracts as c
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import copy_params, flatten, unflatten
from otafl.models.modules import PI


class FedEM(Algorithm):
    r"""Federated expectation maximisation for a mixture of models.

    The server's tensor "model" [S, M * P] holds the models theta_m side by side. The device's
    tensor "mixing" [S, K, M] is pi, initially equal weights.

    Whatever the uplink does, devices keep pi, the weights of the device's own samples, which
    are never sent.

    Notes
    -----
    E-step, with the broadcast models and sum one over m:

    .. math::

        q_k(z_s = m) \propto \pi_{km} \exp(-l(h_m(x_s), y_s))

    M-step: pi_km is the mean of q_k(z_s = m) over all samples of the device. SGD trains theta_m on
    the loss in which sample s has the weight q_k(z_s = m). The posterior of a minibatch is computed
    again from the broadcast models and the old pi. This gives the same numbers as the E-step on all
    samples.

    Examples
    --------
    `studies/pfedbred/pfedbred_fedem.yaml` compares it with pFedBreD.
    """

    averages_increments: ClassVar[bool] = True

    excludes: ClassVar[Mapping[str, str]] = {
        "start": "mixes models that must differ",
    }

    class Settings(AveragedSettings):
        name: Literal["fedem"] = "fedem"
        components: int = Field(3, ge=1)
        """M, the number of mixed models"""

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        # a different start for each component, the first being that of the other methods:
        # components with equal starts would stay equal
        count, starts = self.settings.components, [draw_start(self.model, streams)]
        for m in range(1, count):
            draw = make_draw(streams, f"{m}/")
            one = self.model.init(draw)
            if all(torch.equal(block, starts[0][name]) for name, block in one.items()):
                one = self.model.draw_random_start(draw)
                if all(torch.equal(block, starts[0][name]) for name, block in one.items()):
                    raise UserError(
                        f"algorithm.components: got {count}, but models from the same start stay "
                        "the same and this model's start is not random; use components: 1"
                    )
            starts.append(one)
        flat = torch.cat([flatten(one) for one in starts], 1)
        return {c.MODEL: flat}, {PI: flat.new_full((len(flat), 1, count), 1.0 / count)}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        flat, work = broadcast.tensors[c.MODEL], context.local_data
        rate = context.gather_hyper("learning_rate")
        old, log_pi = self._split_components(flat), devices[PI].log()
        everything = work.load_full_batch()
        q, share = self._compute_posterior(old, log_pi, everything), everything.weight
        pi = q.mean(-1) if share is None else (q * share[:, None]).sum(-1)  # the M-step
        new = [copy_params(one) for one in old]
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            q = self._compute_posterior(old, log_pi, batch)
            q = q / q.shape[-1] if batch.weight is None else q * batch.weight[:, None]
            for m, params in enumerate(new):
                loss += self.model.take_sgd_step_(params, replace(batch, weight=q[:, m]), rate)
        moved = torch.cat([flatten(one) for one in new], 1).sub_(flat)
        return {PI: pi}, (c.Group({c.MODEL: moved}),), loss / work.steps

    def _split_components(self, flat: Tensor) -> list[c.Tensors]:
        """Return the components [n, *shape] of [n, M * P], as views."""
        return [unflatten(one, self.model.shapes) for one in flat.split(self.model.num_params, 1)]

    def _compute_posterior(
        self, parts: Sequence[c.Tensors], log_pi: Tensor, batch: c.Batch
    ) -> Tensor:
        """Compute q [n, M, B] of the samples, of sum one over M."""
        loss, kept = self.model.loss, replace(batch, keys=None)  # every component without dropout
        log_likelihood = [
            loss.compute_log_likelihood(self.model.score_batch(one, kept), batch.y) for one in parts
        ]
        return torch.softmax(torch.stack(log_likelihood, 1) + log_pi[..., None], 1)

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        flat, pi = server[c.MODEL], devices[PI]
        every = flat[:, None].expand(-1, pi.shape[1], -1).flatten(0, 1)
        views = {
            "global": c.View({c.MODEL: flat, PI: pi.mean(1).log()}, self._predict_mixture),
            "personal": c.View(
                {c.MODEL: every, PI: pi.flatten(0, 1).log()}, self._predict_mixture, "device"
            ),
        }
        how: Literal["mixture", "weighted_mean"] = "mixture"
        if self.model.loss.mixes_predictions:
            how = "weighted_mean"
        return {name: replace(view, ensemble=how) for name, view in views.items()}

    def _predict_mixture(self, params: c.Tensors, x: Tensor) -> Tensor:
        """Compute the scores [n, B, ...] of sum_m pi_m h_m(x).

        pi is the softmax of the tensor, so that it stays a mixture after a gradient step.
        """
        parts = self._split_components(params[c.MODEL])
        scores = torch.stack([self.model.logits(one, x) for one in parts])
        log_pi = torch.log_softmax(params[PI], -1).T
        log_pi = log_pi[(..., *[None] * (scores.dim() - 2))]
        return self.model.loss.mix_scores(scores, log_pi)

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the operations of the E-step and of training.

        The E-step is a forward pass of all samples through every model. A device keeps the
        posterior, which the simulation computes again for every minibatch.
        """
        of_one = super().count_flops(workload) + self.model.count_forward_flops(
            workload.num_samples
        )
        return self.settings.components * of_one
