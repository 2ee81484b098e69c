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

from otafl.algorithms.level_training import levels_of, local_flops, sent_to_levels
from otafl.algorithms.parameters import (
    averaged,
    device_view,
    flat_view,
    shared_start,
    start,
    view_of,
)
from otafl.algorithms.whole_models import density, received_model
from otafl.core import contracts as c
from otafl.core import settings
from otafl.core.rng import Streams
from otafl.core.settings import stackable
from otafl.core.stateful import Stateful
from otafl.models.base import Model, flatten
from otafl.models.network import Network
from otafl.models.span import Form, form_of

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
    devices : K, in the population.
    """

    old_names: ClassVar = {"settle": "on_ack"}

    needs: ClassVar[Needs] = "mean"
    """What the server must get of the updates: their mean, or each of them."""

    averages: ClassVar[bool] = False
    """The server's block "model" moves by averaged increments, so that a server optimiser may take
    the step instead."""

    merges: ClassVar[bool] = True
    """Several servers' models can be averaged (`spread`, `gathered`)."""

    whole: ClassVar[bool] = False
    """Devices send the model itself, by `whole_models.payload_of`, and its mean is the server's
    next; the server's blocks are the parameters [S, *shape], not "model"."""

    sends_updates: ClassVar[bool] = True
    """Devices send something; of a method that trains at the devices alone they do not."""

    sends_sums: ClassVar[bool] = False
    """The server needs plain sums of what devices send, as of factors of a product; a vote is no
    substitute for them."""

    needs_norms: ClassVar[bool] = False
    """The model must have normalisation layers."""

    late_scores: ClassVar[tuple[str, ...]] = ()
    """Variables of the result that show no learning in the first hundred rounds at the default
    settings, where others do."""

    own_state: ClassVar[str] = ""
    """What devices keep for themselves and why, as a phrase for the reference. It changes the same
    whether or not the server receives an update."""

    acknowledged_state: ClassVar[tuple[str, ...]] = ()
    """The devices' blocks that change only by updates that the server has received (`on_ack`), by
    what their names begin with; all others are `own_state`."""

    device_rows: ClassVar[tuple[str, ...]] = ()
    """The server's blocks [S, K, *shape] with a row for each device, which changes only by updates
    of that device that were received."""

    sent_down: ClassVar[tuple[str, ...]] = ()
    """The server's blocks that devices receive; all of them if none is named."""

    keeps: tuple[str, ...] = ()
    """Models that each device keeps, at first the server's, as blocks "personal.<parameter>" if
    one is called "personal", which then is tested."""

    sizes: tuple[Network, ...] = ()
    """The network of each level, the largest first, of a method that has levels."""

    class Settings(settings.Settings):
        """Hold the section `algorithm` of a scenario."""

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        self.settings, self.model, self.devices = settings, model, devices

    @functools.cached_property
    def form(self) -> Form:
        """Return how the model's parameters are kept where several steps share a minibatch."""
        return form_of(self.model)

    @classmethod
    def needs_of(cls, settings: Any) -> Needs:
        """Return what the server must get under these settings."""
        return cls.needs

    @classmethod
    def sends_increments(cls, settings: Any) -> bool:
        """Return whether all that devices send under these settings are changes, of which 0 means
        none. A vote of signs, error feedback and a choice by norm presuppose it."""
        return not cls.whole

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        """Return the server's blocks [S, *shape] and the devices' [S, K, *shape] at the start;
        [S, 1, *shape] for a start that all devices of a trial share. By default the model's own
        start, and the same at the devices of a method that `keeps` any."""
        params = start(self.model, streams)
        flat = flatten(params)
        devices: c.Tensors = {}
        for kept in self.keeps:
            devices |= shared_start(kept, flat, self.model)
        return params if self.whole else {c.MODEL: flat}, devices

    def broadcast(self, server: c.Tensors, cohort: c.Cohort) -> c.Broadcast:
        """Return what the devices receive."""
        blocks = {name: server[name] for name in self.sent_down or server}
        if not self.sizes:
            return c.Broadcast(blocks)
        return sent_to_levels(blocks, cohort, [size.size for size in self.sizes])

    @abstractmethod
    def local(self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext) -> Outcome:
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

    def combine(self, server: c.Tensors, received: c.Received, context: c.Context) -> c.Tensors:
        """Return the server's blocks [S, *shape] after what was received: by default a step of
        `server_learning_rate` along the mean increment."""
        if self.whole:
            return received_model(server, received)
        return {c.MODEL: averaged(server, received, context.hyper)}

    def spread(self, server: c.Tensors) -> c.Tensors:
        """Return what several servers tell each other of their models, blocks [S, *shape] whose
        mean says the mean model. By default all blocks but those of whole numbers."""
        return {name: block for name, block in server.items() if block.is_floating_point()}

    def gathered(self, server: c.Tensors, told: c.Tensors) -> c.Tensors:
        """Return the server's blocks after means of what servers told each other; by default these
        take their places."""
        return {**server, **told}

    @property
    def has_on_ack(self) -> bool:
        """Whether the method overrides `on_ack`; otherwise it is not called."""
        return type(self).on_ack is not Algorithm.on_ack

    def on_ack(
        self, devices: c.Tensors, sent: c.Payload, heard: c.DeliveredMasks, context: c.Context
    ) -> c.Tensors:
        """Return the blocks [n, *shape] of devices that sent, once it is known what the server has
        received.

        What presupposes that an update arrives is settled here and not in `local`. It is asked for
        every update once: after its slot, or as soon as it has missed all.

        Parameters
        ----------
        devices : the devices' own blocks [n, *shape], as `local` left them.
        sent : what `local` gave these devices to send.
        heard : what of it the server has received, of each group of the payload [n, 1] bool, or
            [n, P] where some of a row's P reals may be missing. What a codec keeps to send it later
            (error feedback) counts as received.
        context : the devices, and the round of the slot, later than their own where they were late.
        """
        return devices

    def views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        """Return the models to test, by the names "global", "local", "personal" and "mean", and
        "level0", "level1", ... of a method that has models of several sizes."""
        views: Views = {}
        if self.whole:
            views["global"] = view_of(self.model, server)
        elif c.MODEL in server:
            views["global"] = flat_view(self.model, server[c.MODEL])
        if "personal" in self.keeps:
            views["personal"] = device_view(self.model, devices, "personal")
        return views

    def flops(self, load: c.Workload) -> np.ndarray:
        """Return the floating-point operations of each device's local work, an array like
        `load.samples`.

        Counted is what a device must do, not what the simulation of many at once adds to it: a
        multiplication and an addition a MAC, decompositions, and what is done to every parameter.
        By default so many `gradients_per_step` on one minibatch each, and the two numbers below.
        """
        if self.sizes:
            return self.level_flops(0, load)
        gradients = load.steps * (self.gradients_per_step or 1)
        elementwise = load.steps * self.step_operations + self.round_operations
        return gradients * self.model.training_flops(load.batch) + elementwise * self.model.size

    def level_flops(self, level: int, load: c.Workload) -> np.ndarray:
        """Return the operations of devices of a level, of a method that has levels."""
        return local_flops(self.sizes[level], self.settings, load)

    @property
    def step_operations(self) -> float:
        """Count the operations a parameter in a local step, beside the gradients': a multiplication
        and a subtraction in a step of SGD."""
        return 2.0

    @property
    def round_operations(self) -> float:
        """Count the operations a parameter in a round, beside the steps': a subtraction where the
        increment is sent."""
        return 0.0 if self.whole else 1.0

    @property
    def apart(self) -> bool:
        """Say whether `views` and `measures` look at devices one by one: what they make of each row
        of the devices' blocks [S, M, *shape] depends on no other, nor on M being K.

        Then devices that are still at the start can be tested together. By default a method that
        has no views or measures of its own.
        """
        own, base = type(self), Algorithm
        return own.views is base.views and own.measures is base.measures

    @property
    def gradients_per_step(self) -> int | None:
        """Count the gradients of a local step, for a method of which they are recorded; None for
        one in each step."""
        return None

    def sends(self, context: c.Context) -> Tensor | None:
        """Return which rows are aggregated, [N] bool; the others train all the same. None: all."""
        return None

    def row_weights(self, context: c.Context) -> Tensor:
        """Return how much each row counts, [N]: by default its share of the trial's samples."""
        return context.cohort.weight

    def version(self, server: c.Tensors) -> Tensor | None:
        """Return the server's steps so far, [S] int64, which versions and staleness then count.

        None: it steps in every slot, and slots are counted.
        """
        return None

    def levels(self) -> tuple[c.Submodel, ...]:
        """Return the sizes that the method has models of, the largest first; none if all devices
        train the same model."""
        if not self.sizes:
            return ()
        return levels_of(self.settings.levels, self.sizes, self.level_flops)

    def measures(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Return what more there is to say of a trained state, [S] each, by names of
        `otafl.results.variables.VARIABLES`; asked at every evaluation. By default, of whole models,
        the share of the weights that are not zero."""
        return density(server, self.model) if self.whole else {}

    def constants(self) -> dict[str, float]:
        """Return what holds for all trials and rounds, by names of
        `otafl.results.variables.VARIABLES`."""
        count = self.gradients_per_step
        return {} if count is None else {"gradients_per_step": float(count)}

    def model_of(self, view: str) -> Model:
        """Return the model whose parameters a view has."""
        level = view.removeprefix("level")
        return self.sizes[int(level)] if self.sizes and level.isdigit() else self.model


class AveragedSettings(settings.Settings):
    """Hold what methods with one global model have: the server adds the mean increment to it."""

    learning_rate: float = stackable(0.01, gt=0)
    """SGD step of the model that is aggregated; pFedBreD's alpha_m"""
    server_learning_rate: float = stackable(1.0, gt=0)
    """factor on the averaged increment; 2 is the trick AM of pFedBreD, appendix C.4"""


class DecayedSettings(settings.Settings):
    """Hold what methods with one global model have whose devices step less from round to round."""

    learning_rate: float = stackable(0.1, gt=0)
    """SGD step of the first round"""
    decay: float = stackable(0.0, ge=0)
    """the step of round t is learning_rate / (1 + decay t)"""


def personal_rate() -> float:
    """Declare the step of a device's own model."""
    rate: float = stackable(
        0.01, gt=0, description="SGD step of a device's own model; pFedBreD's alpha"
    )
    return rate


def penalty(default: float, description: str) -> float:
    """Declare a penalty's weight."""
    weight: float = stackable(default, ge=0, description=description)
    return weight


def find_overshoot(rate_key: str, rate: float, weight: float) -> Iterator[str]:
    """Yield a sentence where a step on a penalty would reach its centre or jump over it."""
    if rate * weight >= 1:
        yield (
            f"{rate_key} times penalty must be below 1, or a step on the penalty alone jumps over "
            f"the global model; got {rate:g} times {weight:g}"
        )
