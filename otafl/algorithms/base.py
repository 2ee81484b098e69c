"""Say what a federated method is asked for: its contract.

What most methods do alike is done here: the server's block "model" [S, P] holds all parameters of a
trial side by side, every device receives it, and it moves by the mean of the increments that come
back. A method says what is different.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from otafl.algorithms.parameters import (
    apply_mean_increment,
    draw_start,
    make_device_view,
    make_flat_view,
    make_shared_start,
    make_view,
)
from otafl.algorithms.submodel_training import (
    broadcast_to_submodels,
    count_local_flops,
    make_submodels,
)
from otafl.algorithms.whole_models import compute_density, get_received_model
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.core.stateful import Stateful
from otafl.models.base import Model, flatten
from otafl.models.network import Network
from otafl.models.span import Form, choose_form

Needs = Literal["mean", "each"]

Outcome = tuple[c.Tensors, c.Payload, Tensor]
"""What local work gives: the rows' blocks [n, *shape], the payload, and the training loss [n]."""

Views = dict[str, c.View]


class Algorithm(Stateful, ABC):
    """A federated method trains a model on many devices and a server.

    Tensors that a method is given belong to it; what it returns must not alias what the engine
    keeps (state of the server, of the devices, other rows).

    Parameters
    ----------
    settings : the method's, of its class `Settings`.
    model : what is trained.
    num_devices : K, in the population.
    """

    needs: ClassVar[Needs] = "mean"
    """What the server must get of the updates: their mean, or each of them."""

    averages_increments: ClassVar[bool] = False
    """The server's block "model" moves by averaged increments, so that a server optimiser may take
    the step instead."""

    supports_merging: ClassVar[bool] = True
    """Several servers' models can be averaged (`export_shared`, `import_shared`)."""

    sends_model: ClassVar[bool] = False
    """Devices send the model itself, by `whole_models.payload_of`, and its mean is the server's
    next; the server's blocks are the parameters [S, *shape], not "model"."""

    sends_updates: ClassVar[bool] = True
    """Devices send something; of a method that trains at the devices alone they do not."""

    needs_sums: ClassVar[bool] = False
    """The server needs plain sums of what devices send, as of factors of a product; a vote is no
    substitute for them."""

    needs_normalisation: ClassVar[bool] = False
    """The model must have normalisation layers."""

    needs_classes: ClassVar[str] = ""
    """What it needs the samples' classes for ("aligns features by class"); empty for a method that
    trains under every loss."""

    slow_metrics: ClassVar[tuple[str, ...]] = ()
    """Variables of the result that show no learning in the first hundred rounds at the default
    settings, where others do."""

    private_state: ClassVar[str] = ""
    """What devices keep for themselves and why, as a phrase for the reference. It changes the same
    whether or not the server receives an update."""

    acknowledged_state: ClassVar[tuple[str, ...]] = ()
    """The devices' blocks that change only by updates that the server has received (`on_ack`), by
    what their names begin with; all others are `private_state`."""

    per_device_state: ClassVar[tuple[str, ...]] = ()
    """The server's blocks [S, K, *shape] with a row for each device, which changes only by updates
    of that device that were received."""

    broadcast_names: ClassVar[tuple[str, ...]] = ()
    """The server's blocks that devices receive; all of them if none is named."""

    device_models: tuple[str, ...] = ()
    """Models that each device keeps, at first the server's, as blocks "personal.<parameter>" if
    one is called "personal", which then is tested."""

    submodels: tuple[Network, ...] = ()
    """The network of each level, the largest first, of a method that has levels."""

    class Settings(settings.Settings):
        """Hold the section `algorithm` of a scenario."""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.settings, self.model, self.num_devices = settings, model, devices

    @functools.cached_property
    def form(self) -> Form:
        """Return how the model's parameters are kept where several steps share a minibatch."""
        return choose_form(self.model)

    @classmethod
    def get_needs(cls, settings: Any) -> Needs:
        """Return what the server must get under these settings."""
        return cls.needs

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        """Return whether all that devices send under these settings are changes, of which 0 means
        none. A vote of signs, error feedback and a choice by norm presuppose it."""
        return not cls.sends_model

    refuses_tokens: ClassVar[str] = ""
    """Why it cannot train models of token sequences ("trains a model in several sizes"); empty for
    a method that can."""

    @classmethod
    def find_misfits(cls, settings: Any, labels: str | None) -> Iterator[str]:
        """Yield a sentence where the method cannot train on labels of a kind."""
        if cls.needs_classes and labels not in (None, "classes"):
            yield (
                f"algorithm.name: '{settings.name}' {cls.needs_classes}, and the labels of the "
                "data set are no classes; use another method or data set"
            )
        if cls.refuses_tokens and labels == "tokens":
            yield (
                f"algorithm.name: '{settings.name}' {cls.refuses_tokens}, and no model of token "
                "sequences does; use another method or data set"
            )

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the server's blocks [S, *shape] and the devices' [S, K, *shape] at the start;
        [S, 1, *shape] for a start that all devices of a trial share. By default the model's own
        start, and the same at the devices of a method that `device_models` any."""
        params = draw_start(self.model, streams)
        flat = flatten(params)
        devices: c.Tensors = {}
        for kept in self.device_models:
            devices |= make_shared_start(kept, flat, self.model)
        return params if self.sends_model else {c.MODEL: flat}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Return what the devices receive."""
        blocks = {name: server[name] for name in self.broadcast_names or server}
        if not self.submodels:
            return c.Broadcast(blocks)
        return broadcast_to_submodels(blocks, cohort, [size.num_params for size in self.submodels])

    @abstractmethod
    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        """Do the local work of a chunk of n rows, (trial, device) pairs of any trials.

        Parameters
        ----------
        broadcast : what each row received, [n, *shape].
        devices : the rows' own blocks [n, *shape], as `init` names them.
        context : the rows, their data, and the round.

        Returns
        -------
        The rows' blocks, what they send, and their training loss.
        """

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Return the server's blocks [S, *shape] after what was received: by default a step of
        `server_learning_rate` along the mean increment."""
        if self.sends_model:
            return get_received_model(server, received)
        return {c.MODEL: apply_mean_increment(server, received, context.hyper)}

    def export_shared(self, server: c.Tensors) -> c.Tensors:
        """Return what several servers tell each other of their models, blocks [S, *shape] whose
        mean says the mean model. By default all blocks but those of whole numbers."""
        return {name: block for name, block in server.items() if block.is_floating_point()}

    def import_shared(self, server: c.Tensors, shared: c.Tensors) -> c.Tensors:
        """Return the server's blocks after means of what servers told each other; by default these
        take their places."""
        return {**server, **shared}

    @property
    def has_on_ack(self) -> bool:
        """Whether the method overrides `on_ack`; otherwise it is not called."""
        return type(self).on_ack is not Algorithm.on_ack

    def on_ack(
        self,
        devices: c.Tensors,
        sent: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        """Return the blocks [n, *shape] of devices that sent, once it is known what the server has
        received.

        What presupposes that an update arrives is settled here and not in `run_local_update`. It is
        asked for every update once: after its slot, or as soon as it has missed all.

        Parameters
        ----------
        devices : the devices' own blocks [n, *shape], as `run_local_update` left them.
        sent : what `run_local_update` gave these devices to send.
        delivered_masks : what of it the server has received, of each group of the payload [n, 1]
            bool, or [n, P] where some of a row's P reals may be missing. What a codec keeps to send
            it later (error feedback) counts as received.
        context : the devices, and the round of the slot, later than their own where they were late.
        """
        return devices

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the models to test, by the names "global", "local", "personal" and "mean", and
        "level0", "level1", ... of a method that has models of several sizes."""
        views: Views = {}
        if self.sends_model:
            views["global"] = make_view(self.model, server)
        elif c.MODEL in server:
            views["global"] = make_flat_view(self.model, server[c.MODEL])
        if "personal" in self.device_models:
            views["personal"] = make_device_view(self.model, devices, "personal")
        return views

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Return the floating-point operations of each device's local work, an array like
        `workload.num_samples`.

        Counted is what a device must do, not what the simulation of many at once adds to it: a
        multiplication and an addition a MAC, decompositions, and what is done to every parameter.
        By default so many `gradients_per_step` on one minibatch each, and the two numbers below.
        """
        if self.submodels:
            return self.count_submodel_flops(0, workload)
        gradients = workload.num_steps * (self.gradients_per_step or 1)
        elementwise = workload.num_steps * self.flops_per_param_step + self.flops_per_param_round
        return (
            gradients * self.model.count_training_flops(workload.effective_batch_size)
            + elementwise * self.model.num_params
        )

    def count_submodel_flops(self, capacity_level: int, workload: c.Workload) -> np.ndarray:
        """Return the operations of devices of a level, of a method that has levels."""
        return count_local_flops(self.submodels[capacity_level], self.settings, workload)

    @property
    def flops_per_param_step(self) -> float:
        """Count the operations a parameter in a local step, beside the gradients': a multiplication
        and a subtraction in a step of SGD."""
        return 2.0

    @property
    def flops_per_param_round(self) -> float:
        """Count the operations a parameter in a round, beside the steps': a subtraction where the
        increment is sent."""
        return 0.0 if self.sends_model else 1.0

    @property
    def is_per_device(self) -> bool:
        """Whether `build_views` and `compute_metrics` treat devices independently.

        Their results for each row of the devices' tensors [S, M, *shape] then depend on no other
        row, nor on M being K.

        Then devices that are still at the start can be tested together. By default a method that
        has no views or measures of its own.
        """
        own, base = type(self), Algorithm
        return own.build_views is base.build_views and own.compute_metrics is base.compute_metrics

    @property
    def gradients_per_step(self) -> int | None:
        """Count the gradients of a local step, for a method of which they are recorded; None for
        one in each step."""
        return None

    def select_transmitters(self, context: c.Context) -> Tensor | None:
        """Return which rows are aggregated, [N] bool; the others train all the same. None: all."""
        return None

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return how much each row counts, [N]: by default its share of the trial's samples."""
        return context.cohort.weight

    def get_version(self, server: c.Tensors) -> Tensor | None:
        """Return the server's steps so far, [S] int64, which versions and staleness then count.

        None: it steps in every slot, and slots are counted.
        """
        return None

    def list_submodels(self) -> tuple[c.Submodel, ...]:
        """Return the sizes that the method has models of, the largest first; none if all devices
        train the same model."""
        if not self.submodels:
            return ()
        return make_submodels(self.settings.levels, self.submodels, self.count_submodel_flops)

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Return what more there is to say of a trained state, [S] each, by names of
        `otafl.results.variables.VARIABLES`; asked at every evaluation. By default, of whole models,
        the share of the weights that are not zero."""
        return compute_density(server, self.model) if self.sends_model else {}

    def compute_constants(self) -> dict[str, float]:
        """Return what holds for all trials and rounds, by names of
        `otafl.results.variables.VARIABLES`."""
        count = self.gradients_per_step
        return {} if count is None else {"gradients_per_step": float(count)}

    def get_model(self, view: str) -> Model:
        """Return the model whose parameters a view has."""
        level = view.removeprefix("level")
        return self.submodels[int(level)] if self.submodels and level.isdigit() else self.model


class AveragedSettings(settings.Settings):
    """Hold what methods with one global model have: the server adds the mean increment to it."""

    learning_rate: float = declare_stackable(0.01, gt=0)
    """SGD step of the model that is aggregated; pFedBreD's alpha_m"""
    server_learning_rate: float = declare_stackable(1.0, gt=0)
    """factor on the averaged increment; 2 is the trick AM of pFedBreD, appendix C.4"""


class DecayedSettings(settings.Settings):
    """Hold what methods with one global model have whose devices step less from round to round."""

    learning_rate: float = declare_stackable(0.1, gt=0)
    """SGD step of the first round"""
    decay: float = declare_stackable(0.0, ge=0)
    """the step of round t is learning_rate / (1 + decay t)"""


def declare_personal_rate() -> float:
    """Declare the step of a device's own model."""
    rate: float = declare_stackable(
        0.01, gt=0, description="SGD step of a device's own model; pFedBreD's alpha"
    )
    return rate


def declare_penalty(default: float, description: str) -> float:
    """Declare a penalty's weight."""
    weight: float = declare_stackable(default, ge=0, description=description)
    return weight


def find_overshoot(rate_key: str, rate: float, weight: float) -> Iterator[str]:
    """Yield a sentence where a step on a penalty would reach its centre or jump over it."""
    if rate * weight >= 1:
        yield (
            f"{rate_key} times penalty must be below 1, or a step on the penalty alone jumps over "
            f"the global model; got {rate:g} times {weight:g}"
        )
