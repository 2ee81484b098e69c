"""Personal models by Moreau envelopes of the devices' losses (pFedMe).

Each local step solves the proximal problem around the local model on one minibatch, by a few
gradient steps, and descends its Moreau envelope. The personal model is the solution after local
training. pFedMe is pFedBreD whose prior has the local model as mean. The authors' beta is
`server_learning_rate`.

The published program differs in three points (`implementation: original`, for comparison). Its
proximal steps have a weight decay of 1e-3. They start at the solution of the last local step, and
at the local model only in the first step of a round. The tensors of its personal model are those of
the local model, so its personal model is the local one.

References
----------
Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment_,
    count_step_flops,
    get_received_params,
)
from otafl.algorithms.prox import (
    ENVELOPE,
    PENALISED,
    PENALTY,
    PROX_STEPS,
    find_divergence,
    take_envelope_step,
    take_gradient_steps,
)
from otafl.algorithms.shared_settings import (
    AveragedSettings,
    declare_penalty,
    declare_personal_rate,
)
from otafl.core.contracts import Batch, Broadcast, LocalContext, Tensors, Workload
from otafl.core.settings import declare_stackable
from otafl.models.base import Model
from otafl.models.span import FormParams, subtract_params


class PFedMe(Algorithm):
    r"""Personalised federated learning with Moreau envelopes.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are the personal
    model, initially the server's start.

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    K gradient steps of size alpha from w solve the proximal problem on a minibatch X, and w
    descends its envelope:

    .. math::

        \theta \approx \mathrm{argmin} \ f(\theta; X) + \frac{\lambda}{2} \|\theta - w\|^2, \quad w
        \leftarrow w - \eta \lambda (w - \theta)

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(AveragedSettings):
        name: Literal["pfedme"] = "pfedme"
        penalty: float = declare_penalty(15.0, PENALTY)
        personal_learning_rate: float = declare_personal_rate()
        prox_steps: int = Field(5, ge=1, description=PROX_STEPS)
        implementation: Literal["paper", "original"] = "paper"
        """form of the step: paper, as published; original, the authors' program, whose proximal
        steps have a weight decay and start at the end of the last local step, and whose personal
        model is the local one"""
        weight_decay: float = declare_stackable(1e-3, ge=0)
        """weight decay in each proximal step, with implementation: original"""

        def find_conflicts(self) -> Iterator[str]:
            return find_divergence(self.personal_learning_rate, self.penalty)

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.constants = {"gradients_per_step": float(settings.prox_steps)}

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        as_published = self.settings.implementation == "paper"
        rates = {name: context.gather_hyper(name) for name in context.hyper}
        received = get_received_params(broadcast, self.model)
        w = form.copy_params(received)
        theta = form.copy_params(
            received
        )  # the model that the first step of "original" starts from
        step = self._take_step_ if as_published else self._take_published_step_
        loss = torch.zeros_like(rates["penalty"])
        for index in range(work.steps):
            loss += step(work.draw_batch(index), w, theta, rates)
        local = form.to_params(w)
        sent = build_increment_(local, broadcast, self.model.shapes)
        personal = form.to_params(theta) if as_published else local
        return add_prefix("personal", personal), sent, loss / work.steps

    def _take_step_(self, batch: Batch, w: FormParams, theta: FormParams, rates: Tensors) -> Tensor:
        """Take a local step in place and return the loss [n] before it."""
        span = self.form.make_span(batch, w)
        at, steps = span.origin, self.settings.prox_steps
        solved, moved, loss = take_envelope_step(span, at, at, at, rates, steps)
        span.write_each_((moved, w), (solved, theta))
        return loss

    def _take_published_step_(
        self, batch: Batch, w: FormParams, theta: FormParams, rates: Tensors
    ) -> Tensor:
        """Take the published program's step in place and return the loss [n] before it.

        Decay and penalty together pull towards lambda / (lambda + decay) w, with the weight lambda
        + decay.
        """
        whole = self.form.copy_params(self.form.to_params(w))
        span = self.form.make_span(batch, theta, subtract_params(w, theta), whole)
        local = span.origin + span.directions[0]
        both = rates["penalty"] + rates["weight_decay"]
        share = (rates["weight_decay"] / both)[:, None]
        shrunk = torch.addcmul(local, share, span.directions[1], value=-1.0)
        rate, steps = rates["personal_learning_rate"], self.settings.prox_steps
        solved, loss = take_gradient_steps(span, span.origin, shrunk, rate, both, steps)
        along = (rates["learning_rate"] * rates["penalty"])[:, None]
        moved = torch.addcmul(local, along, solved - local)
        span.write_each_((moved, w), (solved, theta))
        return loss

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the proximal steps and the step of w.

        "original" also computes its point without decay.
        """
        local = ENVELOPE if self.settings.implementation == "paper" else ENVELOPE + 2.0
        steps = self.settings.prox_steps
        return count_step_flops(self.model, workload, steps, PENALISED * steps + local)
