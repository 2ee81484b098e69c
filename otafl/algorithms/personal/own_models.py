"""Models of each device's own: alone, beside the averaged one, or a step away from it.

These are local training, Ditto, APFL and Per-FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.algorithms.base import (
    Algorithm,
    AveragedSettings,
    Outcome,
    PersonalSettings,
    Views,
    find_overshoot,
)
from otafl.algorithms.parameters import (
    add_prefix,
    build_increment,
    copy_received_params,
    get_received_params,
    make_view,
    run_sgd_,
    run_steps,
    select_prefix,
    take_penalised_step_,
)
from otafl.algorithms.prox import take_step
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.models.base import Model, descend_, unflatten


class LocalOnly(Algorithm):
    """Local training without communication.

    SGD on each device's own samples, the control of personalised methods. Nothing is broadcast or
    sent, so it takes no channel use. There are only personal models, and no global model.

    The server has no state. The device's tensors are "personal.NAME", initially equal within a
    trial.

    Whatever the uplink does, devices keep the personal model: it is trained for the device
    alone.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with personalised methods.
    """

    device_models = ("personal",)

    is_per_device = True

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "trains no common model",
    }

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"data.own_test": True}

        name: Literal["local_only"] = "local_only"
        personal_learning_rate: float = declare_stackable(0.01, gt=0)
        """step size of SGD on a device's own model"""

        def check(self, scenario: Any) -> Iterator[Problem]:
            if scenario.robust.is_active:
                text = "'local_only' sends no updates; use another algorithm, such as fedavg"
                yield make_problem(text, "algorithm", "robust")

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the steps; nothing is sent."""
        return self.count_step_flops(workload, per_param_round=0.0)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        return {}, super().init(streams, hyper)[1]

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        params = select_prefix(devices, "personal")
        loss = run_sgd_(self.model, params, context.gather_hyper("personal_learning_rate"), context)
        return add_prefix("personal", params), (), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return server


class Ditto(Algorithm):
    r"""Ditto: federated averaging with personal models under a quadratic penalty.

    A device trains a personal model besides federated averaging, under a penalty on the distance to
    the model that it received in this round. Both models take the same number of steps, on the same
    minibatches. With penalty 0 the device trains its personal model alone. That of an absent device
    stays unchanged.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are v, initially
    the server's start.

    Whatever the uplink does, devices keep the personal model: it is trained for the device,
    from what it received.

    Notes
    -----
    The device descends F_k(v) + lambda/2 |v - w^t|^2, where w^t is the received model:

    .. math::

        v \leftarrow v - \eta \left( \nabla F_k(v) + \lambda (v - w^t) \right)

    References
    ----------
    Li, Hu, Beirami, Smith 2021, "Ditto: Fair and Robust Federated Learning Through
        Personalization", Algorithm 1.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(PersonalSettings):
        name: Literal["ditto"] = "ditto"
        penalty: float = declare_stackable(1.0, ge=0)
        """lambda, weight of the penalty lambda/2 |v - w|^2 on a device's own model v"""

        def find_conflicts(self) -> Iterator[str]:
            return find_overshoot(
                "personal_learning_rate", self.personal_learning_rate, self.penalty, "penalty"
            )

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        received = get_received_params(broadcast, self.model)
        w, v = self.model.copy_trainable(received), select_prefix(devices, "personal")
        rate = context.gather_hyper("learning_rate")
        own_rate = context.gather_hyper("personal_learning_rate")
        weight = context.gather_hyper("penalty")

        def take_step_(batch: c.Batch) -> Tensor:
            take_penalised_step_(self.model, v, received, batch, own_rate, weight)
            return self.model.take_sgd_step_(w, batch, rate)

        loss = run_steps(context, take_step_)
        sent = build_increment(w, broadcast, self.model.shapes)
        return add_prefix("personal", v), sent, loss

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the step of w, and that of v with its penalty: v - w, times lambda, added."""
        return self.count_step_flops(workload, gradients=2, per_param_step=7.0)


ALPHA = "mixing"


class Apfl(Algorithm):
    r"""Adaptive personalised federated learning (APFL).

    Each device trains two models on the same minibatches: the averaged model, and its own model
    through the mixture of both. With `adaptive` it also learns the share of its own model. The
    personal model is the mixture with the averaged model after aggregation, which is the output of
    the paper's algorithm. So the personal models of absent devices change with the averaged one.

    The server's tensor "model" [S, P] is w. The device's tensors "personal.NAME" are v, initially
    the server's start, and "mixing" [S, K] is alpha.

    Whatever the uplink does, devices keep v and alpha: they are trained for the device, from
    what it received.

    Notes
    -----
    All steps of a round use the step size eta of the paper; here w and v can have different ones.
    With the mixture m = alpha v + (1 - alpha) w:

    .. math::

        w \leftarrow w - \eta \nabla f(w)

    .. math::

        v \leftarrow v - \eta \alpha \nabla f(m)

    With `adaptive` the device updates alpha once a round, at the first minibatch and with the
    models before it, and clips it to 0 to 1:

    .. math::

        \alpha \leftarrow \alpha - \eta \langle v - w, \nabla f(m) \rangle

    References
    ----------
    Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", Algorithm 1.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    device_models = ("personal",)

    is_per_device = True

    class Settings(PersonalSettings):
        name: Literal["apfl"] = "apfl"
        mixing: float = declare_stackable(0.5, ge=0, le=1)
        """initial alpha, the share of the device's own model in the mixture"""
        adaptive: bool = True
        """whether each device learns its alpha, by one gradient step a round with
        personal_learning_rate, clipped to 0 to 1"""

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        return server, devices | {ALPHA: hyper["mixing"][:, None]}

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        w, work = copy_received_params(broadcast, self.model), context.local_data
        v, alpha = select_prefix(devices, "personal"), devices[ALPHA]
        mixed = {name: torch.empty_like(block) for name, block in v.items()}
        rate = context.gather_hyper("learning_rate")
        own_rate = context.gather_hyper("personal_learning_rate")
        loss = torch.zeros_like(rate)
        for step in range(work.steps):
            batch = work.draw_batch(step)
            for name, block in mixed.items():
                torch.lerp(w[name], v[name], c.unsqueeze_like(alpha, block), out=block)
            _, grads = self.model.compute_gradients(mixed, batch)
            size = own_rate * alpha
            if self.settings.adaptive and step == 0:
                along = [((v[n] - w[n]) * g).flatten(1).sum(1) for n, g in grads.items()]
                alpha = (alpha - own_rate * torch.stack(along).sum(0)).clamp(0.0, 1.0)
            descend_(v, grads, size)
            loss += self.model.take_sgd_step_(w, batch, rate)
        sent = build_increment(w, broadcast, self.model.shapes)
        return add_prefix("personal", v) | {ALPHA: alpha}, sent, loss / work.steps

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        w, alpha = unflatten(server[c.MODEL], self.model.shapes), devices[ALPHA]
        mixed = {}
        for name, v in select_prefix(devices, "personal").items():
            share = alpha.view(*alpha.shape, *[1] * (v.dim() - 2))
            mixed[name] = torch.lerp(w[name][:, None], v, share).flatten(0, 1)
        return super().build_views(server, devices) | {
            "personal": make_view(self.model, mixed, "device")
        }

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the mixture w + alpha (v - w) and the steps of v and w.

        A round has the increment of w, and the inner product of v - w and the gradient.
        """
        in_round = 4.0 if self.settings.adaptive else 1.0
        return self.count_step_flops(workload, 2, per_param_step=7.0, per_param_round=in_round)


FINE_TUNE_RATE = "fine_tune_learning_rate"
"""Name of the server's tensor of alpha, [S], which the views need."""


class PerFedAvg(Algorithm):
    r"""A global model from which a gradient step gives a good personal model (Per-FedAvg).

    Model-agnostic meta-learning. A local step follows the gradient of the loss after one gradient
    step, with independent minibatches for both. The personal model is the global one after gradient
    steps on the device's own samples, before the test.

    The server's tensors are "model" [S, P] and alpha [S]. Devices have no state.

    Notes
    -----
    With minibatches D and D', the step size alpha `personal_learning_rate` and beta
    `learning_rate`:

    .. math::

        u = w - \alpha \nabla f(w; D)

    .. math::

        w \leftarrow w - \beta \nabla f(u; D')

    This is FO, the authors' first-order approximation, which leaves the Hessian of the
    meta-gradient out.

    References
    ----------
    Fallah, Mokhtari, Ozdaglar 2020, "Personalized Federated Learning with Theoretical Guarantees: A
        Model-Agnostic Meta-Learning Approach", Algorithm 1.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with other personalised methods.
    """

    averages_increments: ClassVar[bool] = True

    class Settings(AveragedSettings):
        name: Literal["per_fedavg"] = "per_fedavg"
        personal_learning_rate: float = declare_stackable(0.01, gt=0)
        """alpha, step size from the global model to a device's own"""
        fine_tune_steps: int = Field(1, ge=1)
        """number of steps from the global model to the personal one before the test; pFedBreD's
        text has 2, its program 1"""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        self.constants = {"gradients_per_step": 2.0}

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        server, devices = super().init(streams, hyper)
        return server | {FINE_TUNE_RATE: hyper["personal_learning_rate"].clone()}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        return c.Broadcast({c.MODEL: server[c.MODEL]})

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        form, work = self.form, context.local_data
        w = form.copy_params(get_received_params(broadcast, self.model))
        alpha = context.gather_hyper("personal_learning_rate")
        beta = context.gather_hyper("learning_rate")
        loss = torch.zeros_like(alpha)
        for index in range(work.steps):
            span = form.make_span(
                work.draw_batch(index), w, second_batch=work.draw_batch(index, draw_index=1)
            )
            inner = span.compute_second_gradient()
            slope = span.compute_gradient(take_step(span, span.origin, inner, alpha))
            loss += inner.loss
            form.take_step_(w, slope, beta)
        sent = build_increment(form.to_params(w), broadcast, self.model.shapes)
        return {}, sent, loss / work.steps

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return super().update_server(server, received, context) | {
            FINE_TUNE_RATE: server[FINE_TUNE_RATE]
        }

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        views = super().build_views(server, devices)
        model = views["global"]
        tuned = c.FineTuneSpec(self.settings.fine_tune_steps, server[FINE_TUNE_RATE])
        return views | {"personal": c.View(model.params, model.predict_fn, fine_tune=tuned)}

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count a step for each of the two gradients."""
        return self.count_step_flops(workload, gradients=2, per_param_step=4.0)
