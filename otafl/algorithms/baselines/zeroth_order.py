r"""Federated learning from differences of losses along random directions (zeroth-order).

In each round server and devices draw q directions of the model from a shared seed. A device
evaluates losses on both sides of its model along the directions, and sends q numbers. It needs no
backward pass: it stores no activations and no gradient. Every local step follows all directions.

References
----------
Chen, Yang, Li, Park, Quek 2025, "Zeroth-Order Over-the-Air Federated Large Model Tuning Over Edge
    Networks".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, DecayedSettings, Outcome
from otafl.algorithms.parameters import compute_step_size
from otafl.core import contracts as c
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_purpose
from otafl.core.settings import declare_stackable
from otafl.models.base import unflatten

DIRECTION = declare_purpose("zeroth_order_direction", __name__)

SLOPES = "slopes"
"""Name of the only tensor of the payload, the slopes [n, q] along the directions."""

CHUNK = 2**22
"""Coordinates of the directions that are drawn at once; the server draws at least one of each
trial."""


class ZerothOrder(Algorithm):
    r"""Zeroth-order federated learning.

    The server's tensor "model" [S, P] holds all parameters of a trial side by side. Devices have no
    state.

    Notes
    -----
    Slope of device k along the standard normal direction u_j [P], on a minibatch:

    .. math::

        g_{kj} = \frac{F_k(w_k + \mu u_j) - F_k(w_k - \mu u_j)}{2 \mu}

    A local step:

    .. math::

        w_k \leftarrow w_k - \frac{\eta}{q} \sum_j g_{kj} u_j

    The device sends the sum z_k [q] of its slopes over the local steps. With the aggregation
    weights p_k the server steps along their mean:

    .. math::

        w \leftarrow w - \frac{\eta}{q} \sum_j u_j \sum_k p_k z_{kj}

    Noise of variance v on each received number adds eta^2 v P / q to the expected squared error of
    the weights, because the mean of q directions has E|u_j|^2 = P each.

    Examples
    --------
    The page on methods shows a scenario with it.
    """

    averages_increments: ClassVar[bool] = True

    class Settings(DecayedSettings):
        name: Literal["zeroth_order"] = "zeroth_order"
        directions: int = Field(16, ge=1)
        """directions q of a round, and numbers that a device sends"""
        smoothing: float = declare_stackable(1e-3, gt=0)
        """distance mu of the two evaluations from the model, per unit of a coordinate's standard
        deviation"""

        def check(self, scenario: Any) -> Iterator[Problem]:
            """Yield the parts that would use slopes along the directions of another round."""
            devices, name = scenario.devices, scenario.algorithm.name
            wrong = f"does not go with algorithm '{name}', whose directions are those of one round;"
            if devices.protocol.goes_on:
                text = f"'{devices.protocol.name}' {wrong} use protocol: rounds"
                yield make_problem(text, "devices.protocol", "algorithm")
            if devices.late == "next":
                yield make_problem(f"'next' {wrong} use late: drop", "devices.late", "algorithm")
            if getattr(scenario.codec.values, "error_feedback", False):
                text = f"true {wrong} use error_feedback: false"
                yield make_problem(text, "codec.error_feedback", "algorithm")

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        w, work = broadcast.tensors[c.MODEL], context.local_data
        trial, count = context.cohort.trial, self.settings.directions
        eta = compute_step_size(context.hyper, context.round)[trial]
        slopes = w.new_zeros(len(w), count)
        loss = torch.zeros_like(eta)
        mu, trials = context.gather_hyper("smoothing"), context.streams.num_trials
        shared = None  # all directions [S, q, P] of a round, unless they take too much memory
        if trials <= len(w) * work.steps and trials * count * w.shape[1] <= CHUNK:
            pairs = context.streams.list_pairs(count)
            shared = draw_directions(context, *pairs, w.shape[1]).view(trials, count, -1)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            moved = w.clone() if step + 1 < work.steps else None
            for j in range(count):
                if shared is None:
                    u = draw_directions(context, trial, torch.full_like(trial, j), w.shape[1])
                else:
                    u = shared[trial, j]
                ahead, behind = (
                    self._compute_loss(w + side[:, None] * u, batch) for side in (mu, -mu)
                )
                slope = (ahead - behind) / (2.0 * mu)
                slopes[:, j] += slope
                loss += 0.5 * (ahead + behind) / count
                if moved is not None:
                    moved.addcmul_((eta * slope / count)[:, None], u, value=-1.0)
            w = w if moved is None else moved
        return {}, (c.Group({SLOPES: slopes}),), loss / work.steps

    def _compute_loss(self, w: Tensor, batch: c.Batch) -> Tensor:
        """Return the losses [n] of models [n, P] on a minibatch of each."""
        params = unflatten(w, self.model.shapes)
        scores = self.model.score_batch(params, batch)
        return self.model.loss.compute_mean(scores, batch)

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Step along the directions, weighted by the mean slopes, a few directions at a time."""
        w, z = server[c.MODEL], received.mean[0][SLOPES]
        eta = compute_step_size(context.hyper, context.round)
        (trials, size), count = w.shape, self.settings.directions
        step = torch.zeros_like(w)
        width = max(1, CHUNK // (trials * size))
        for first in range(0, count, width):
            j = torch.arange(first, min(first + width, count), device=w.device)
            trial = torch.arange(trials, device=w.device).repeat_interleave(len(j))
            u = draw_directions(context, trial, j.repeat(trials), size)
            step += torch.einsum("sj,sjp->sp", z[:, j], u.view(trials, len(j), size))
        return {c.MODEL: torch.addcmul(w, (eta / count)[:, None], step, value=-1.0)}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count two forward passes for each direction, and no backward pass.

        A direction takes eight operations per parameter: four for its normal numbers, and four for
        the two models beside w. The step along it takes two, except in the last local step, after
        which the device sends its slopes.
        """
        probes = workload.num_steps * self.settings.directions
        moves = probes - probes // np.maximum(1, workload.num_steps)
        passes = 2.0 * self.model.count_forward_flops(workload.effective_batch_size)
        return probes * passes + (8.0 * probes + 2.0 * moves) * self.model.num_params


def draw_directions(context: c.Context, trial: Tensor, index: Tensor, size: int) -> Tensor:
    """Draw directions of a round, the same for all devices of a trial.

    Parameters
    ----------
    context : Context
        Round and random streams.
    trial, index : Tensor, int64 [m]
        Trial and number of each direction.
    size : int
        Number of parameters P.

    Returns
    -------
    Tensor, float [m, P]
        Standard normal directions.
    """
    streams: Streams = context.streams
    return streams.draw_device_normal(DIRECTION, context.round, trial, index, (size,))
