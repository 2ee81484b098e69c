"""Contract of a federated method, with the steps that most methods share.

By default the server's tensor "model" [S, P] holds all parameters of a trial side by side. Every
device receives it, and the server adds the mean of the increments that the devices send. A method
overrides the steps in which it differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import Tensor

from otafl.algorithms.parameters import (
    add_prefix,
    apply_mean_increment,
    draw_start,
    make_device_view,
    make_flat_view,
)
from otafl.algorithms.submodel_training import broadcast_to_submodels
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import declare_stackable
from otafl.core.stateful import Stateful
from otafl.models.base import Model, flatten
from otafl.models.span import choose_form

Needs = Literal["mean", "each"]

Outcome = tuple[c.Tensors, c.Payload, Tensor]
"""Result of local work: device state [n, *shape], payload, and training loss [n]."""

Views = dict[str, c.View]
"""Models to evaluate, by the prefix of their results."""


class PayloadKind(NamedTuple):
    """What the server needs of a method's updates, and what the updates are.

    Parameters
    ----------
    needs : {"mean", "each"}
        Whether the server needs the mean of the updates, or each of them.
    is_increment : bool
        Whether devices send only changes, 0 meaning no change. A vote of signs, error feedback and
        a selection by norm need this.
    """

    needs: Needs = "mean"
    is_increment: bool = True


class Algorithm(Stateful, ABC):
    """A federated method: local work at the devices, and aggregation at the server.

    A server's tensor "version" [S] int64 counts its steps, for a method that does not step in every
    slot; otherwise slots are counted.

    A method owns the tensors that it is given. The tensors that it returns must not share memory
    with state that the engine keeps: of the server, of the devices, or of other rows.

    Parameters
    ----------
    settings : Settings
        Settings of the method, of its class `Settings`.
    model : Model
        Model to train.
    devices : int
        Number of devices in the population, K.

    Attributes
    ----------
    sent_shapes : dict of str to tuple of int
        Shapes of the parameters that are side by side in a payload's tensor "model", in order, by
        default those of the model. A codec that factorises matrices needs them.
    form : Form
        Representation of the model's parameters when several steps share a minibatch.
    constants : dict of str to float
        Results that are the same in all trials and rounds, by their names in
        `otafl.results.variables.VARIABLES`; none by default.
    """

    payload: ClassVar[PayloadKind] = PayloadKind()
    """What the server needs of the updates, and what they are, unless the settings decide."""

    averages_increments: ClassVar[bool] = False
    """Whether the server's tensor "model" moves by averaged increments.

    A server optimiser can then take the step instead.
    """

    only_reads_broadcast: ClassVar[bool] = False
    """Whether `run_local_update` never writes to the broadcast's tensors, nor returns them.

    Then devices of a trial can share them without a copy, for methods of otafl.
    """

    acknowledged_state: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of device tensors that change only by delivered updates (`on_ack`).

    All other device tensors change in the same way whether or not the server receives an update.
    `on_ack` is called for a method that names some.
    """

    excludes: ClassVar[Mapping[str, str]] = {}
    """What it does not go with -> why, after "the method": "start", weights of `model.start`;
    "tokens", models of token sequences; "values", labels that are no classes; "epochs",
    `training.local_epochs`; "merging", the average of several servers' models (`select_shared`);
    "rules", robust rules and other estimates than sums."""

    is_per_device: bool = False
    """Whether `build_views` and `compute_metrics` treat devices independently.

    Their results for each row of the devices' tensors [S, M, *shape] then depend on no other row,
    nor on M being K. Devices that still have the initial state can be tested together.
    """

    device_models: tuple[str, ...] = ()
    """Models that each device keeps, initially the server's, as tensors "PREFIX.PARAMETER".

    A model with the prefix "personal" is evaluated.
    """

    levels: tuple[c.Submodel, ...] = ()
    """Submodel of each capacity level, from the largest; none if all devices train one model."""

    class Settings(settings.Settings):
        """Settings of the section `algorithm` of a scenario."""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.settings, self.model, self.num_devices = settings, model, devices
        self.sent_shapes = model.shapes
        self.form = choose_form(model)
        self.constants: dict[str, float] = {}

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        """Describe the updates under these settings, by default as `payload`."""
        return cls.payload

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the state at the start.

        By default this is the start of the model, at the devices as often as `device_models` has
        names.

        Parameters
        ----------
        streams : Streams
            Source of random numbers.
        hyper : mapping of str to Tensor [S]
            Stackable settings.

        Returns
        -------
        server : dict of str to Tensor [S, *shape]
            State of the server.
        devices : dict of str to Tensor [S, K, *shape]
            State of the devices; [S, 1, *shape] for a start that all devices of a trial share.
        """
        params, devices = draw_start(self.model, streams), dict[str, Tensor]()
        for kept in self.device_models:
            devices |= add_prefix(kept, {name: block[:, None] for name, block in params.items()})
        return {c.MODEL: flatten(params)}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Return the tensors that the devices receive.

        Parameters
        ----------
        server : dict of str to Tensor [S, *shape]
            State of the server.
        cohort : Cohort
            Participants of the round, N rows.

        Returns
        -------
        Broadcast
            By default all tensors of the server, for submodels with the number of coordinates of
            each row.
        """
        if not self.levels:
            return c.Broadcast(server)
        return broadcast_to_submodels(server, cohort, [size.num_params for size in self.levels])

    @abstractmethod
    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        """Compute the local work of a chunk of n rows, (trial, device) pairs of any trials.

        Parameters
        ----------
        broadcast : Broadcast
            Received tensors of each row, [n, *shape].
        devices : dict of str to Tensor [n, *shape]
            State of the rows, with the names of `init`.
        context : LocalContext
            Rows, their data and the round.

        Returns
        -------
        devices : dict of str to Tensor [n, *shape]
            New state of the rows.
        payload : tuple of Group
            Update of each row.
        loss : Tensor [n]
            Training loss of each row.
        """

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Return the server's state after the aggregation.

        Parameters
        ----------
        server : dict of str to Tensor [S, *shape]
            State of the server.
        received : Received
            Aggregates of the payload groups.
        context : Context
            Participants and round.

        Returns
        -------
        dict of str to Tensor [S, *shape]
            New state; by default "model" moves by `server_learning_rate` times the mean increment.
        """
        return {c.MODEL: apply_mean_increment(server, received, context.hyper)}

    def on_ack(
        self,
        devices: c.Tensors,
        sent: c.Payload,
        delivered_masks: c.DeliveredMasks,
        context: c.Context,
    ) -> c.Tensors:
        """Return the state [n, *shape] of devices when the delivery of their updates is known.

        State that depends on the delivery changes here and not in `run_local_update`. The engine
        calls this once for every update: after its slot, or as soon as it has missed all slots.

        Parameters
        ----------
        devices : dict of str to Tensor [n, *shape]
            State of the devices after `run_local_update`.
        sent : tuple of Group
            Payload of `run_local_update`.
        delivered_masks : tuple of Tensor, bool [n, 1] or [n, P]
            Delivered coordinates of each payload group. Coordinates that a codec keeps for a later
            update (error feedback) count as delivered.
        context : Context
            The devices, and the round of the slot. It is later than that of the local work if they
            were late.

        Returns
        -------
        dict of str to Tensor [n, *shape]
            New state of the devices: all tensors of `init`, also unchanged ones.
        """
        return devices

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the models to evaluate.

        Parameters
        ----------
        server : dict of str to Tensor [S, *shape]
            State of the server.
        devices : dict of str to Tensor [S, M, *shape]
            State of the devices.

        Returns
        -------
        dict of str to View
            Models by the names "global", "local", "personal" and "mean", and "level0", "level1",
            ... of a method with submodels.
        """
        views: Views = {}
        if c.MODEL in server:
            views["global"] = make_flat_view(self.model, server[c.MODEL])
        if "personal" in self.device_models:
            views["personal"] = make_device_view(self.model, devices, "personal")
        return views

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        """Count the floating-point operations of each device's local work.

        These are operations that a device needs, without those of simulating many devices at once.
        A MAC has a multiplication and an addition. Decompositions and operations on every parameter
        count too. By default these are the operations of SGD and of an increment.

        Parameters
        ----------
        workload : Workload
            Steps, batch size and samples.

        Returns
        -------
        ndarray
            Operations, in the shape of `workload.num_samples`.
        """
        if self.levels:
            return self.levels[0].flops_fn(workload)
        return self.count_step_flops(workload)

    def count_step_flops(
        self,
        workload: c.Workload,
        gradients: int = 1,
        per_param_step: float = 2.0,
        per_param_round: float = 1.0,
    ) -> np.ndarray:
        """Count the operations of local steps on minibatches, a formula for `count_flops`.

        Parameters
        ----------
        workload : Workload
            Steps, batch size and samples.
        gradients : int
            Number of gradients of a step, on one minibatch each.
        per_param_step : float
            Operations per parameter in a step, besides those of the gradients. SGD has a
            multiplication and a subtraction.
        per_param_round : float
            Operations per parameter in a round, besides those of the steps. An increment takes a
            subtraction.

        Returns
        -------
        ndarray
            Operations, in the shape of `workload.num_samples`.
        """
        of_gradients = gradients * self.model.count_training_flops(workload.effective_batch_size)
        elementwise = workload.num_steps * per_param_step + per_param_round
        return workload.num_steps * of_gradients + elementwise * self.model.num_params

    def compute_weights(self, context: c.Context) -> Tensor:
        """Return the aggregation weight of each row, [N]: its share of the trial's samples."""
        return context.cohort.weight

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Return further results of a trained state, [S] each, at every evaluation.

        Their names are in `otafl.results.variables.VARIABLES`.
        """
        return {}


def select_shared(server: c.Tensors) -> c.Tensors:
    """Return the tensors [S, *shape] that several servers exchange to average their models.

    These are all floating-point tensors of the server with coordinates. A number [S], such as a
    step size, is no model.
    """
    tensors = {name: block for name, block in server.items() if block.dim() > 1}
    return {name: block for name, block in tensors.items() if block.is_floating_point()}


class AveragedSettings(settings.Settings):
    """Settings of methods with one global model, to which the server adds the mean increment."""

    learning_rate: float = declare_stackable(0.01, gt=0)
    """step size of local SGD on the aggregated model; pFedBreD's alpha_m"""
    server_learning_rate: float = declare_stackable(1.0, gt=0)
    """factor of the averaged increment; 2 is the trick AM of pFedBreD, appendix C.4"""


class PersonalSettings(AveragedSettings):
    """Settings of methods whose devices also train models of their own."""

    personal_learning_rate: float = declare_stackable(0.01, gt=0)
    """step size of SGD on a device's own model; pFedBreD's alpha"""


class DecayedSettings(settings.Settings):
    """Settings of methods with one global model whose local step size decays over the rounds."""

    learning_rate: float = declare_stackable(0.1, gt=0)
    """step size of local SGD in the first round"""
    decay: float = declare_stackable(0.0, ge=0)
    """rate of the decay: the step size of round t is learning_rate / (1 + decay t)"""


def find_overshoot(rate_key: str, rate: float, weight: float, weight_key: str) -> Iterator[str]:
    """Check that a step on a penalty does not reach its centre.

    Parameters
    ----------
    rate_key, weight_key : str
        Names of the settings of the step size and of the penalty's weight.
    rate, weight : float
        Step size, and weight of the penalty.

    Yields
    ------
    str
        Message if the product of both is 1 or more.
    """
    if rate * weight >= 1:
        yield (
            f"{rate_key} times {weight_key} must be below 1, because a step on the penalty alone "
            f"otherwise passes the received model; got {rate:g} times {weight:g}"
        )
