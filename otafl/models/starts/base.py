"""Contract of a start: where the weights of a model come from before round 0."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from otafl.core.errors import UserError
from otafl.core.settings import Settings
from otafl.models.base import Model

FIRST = 3
"""Differences that a message lists."""


class ServerSamples(NamedTuple):
    """Training samples that the server holds, and no device.

    Parameters
    ----------
    x : Tensor, float32 [n, *input_shape]
        Samples.
    y : Tensor
        Their labels.
    draws_head : bool
        Whether each trial draws the last layer, because the samples are of chosen classes only.
    """

    x: Tensor
    y: Tensor
    draws_head: bool = False


class Start(Settings):
    """Start of a model. A start is its settings, the section `model.start`."""

    gives_weights: ClassVar[bool] = True
    """Whether it gives weights, and does not leave the model to draw them."""

    is_trained_here: ClassVar[bool] = False
    """Whether the server trains the weights on samples of its own."""

    name: str

    @abstractmethod
    def load(
        self, section: Any, model: Model, samples: ServerSamples | None
    ) -> Mapping[str, Tensor]:
        """Return the weights that all trials start from.

        Parameters
        ----------
        section : Settings
            Section `model` of the scenario.
        model : Model
            The section's model.
        samples : ServerSamples, optional
            Samples that no device holds; None where there are none.

        Returns
        -------
        mapping of str to Tensor [*shape]
            Parameters by name; those that are left out are drawn for each trial.

        Raises
        ------
        UserError
            If the weights cannot be read or do not fit the model.
        """


def check_weights(found: Mapping[str, Any], model: Model, origin: str) -> dict[str, Tensor]:
    """Return weights in single precision or better, if they are those of a model.

    Parameters
    ----------
    found : mapping of str to any
        Weights by name.
    model : Model
        Model.
    origin : str
        Origin of the weights, for the message.

    Returns
    -------
    dict of str to Tensor [*shape]
        The weights, in the order of the model.

    Raises
    ------
    UserError
        If a name, a shape or a type differs; it lists the first differences.
    """
    wrong = list(_list_differences(found, model))
    if wrong:
        more = f", and {len(wrong) - FIRST} more" if len(wrong) > FIRST else ""
        raise UserError(
            f"model.start: {origin} does not fit the model: {'; '.join(wrong[:FIRST])}{more}; "
            "use weights of the same model"
        )
    wide = {name: found[name].detach().view(shape) for name, shape in model.shapes.items()}
    return {name: one if one.dtype == torch.float64 else one.float() for name, one in wide.items()}


def _list_differences(found: Mapping[str, Any], model: Model) -> Iterator[str]:
    """Yield a phrase for each difference from the parameters of a model."""
    for name, shape in model.shapes.items():
        if name not in found:
            yield f"{name} is missing"
            continue
        one = found[name]
        if not isinstance(one, Tensor):
            yield f"{name} is a {type(one).__name__}, not a tensor"
        elif tuple(one.shape or (1,)) != shape:
            yield f"{name} is {list(one.shape)}, not {list(shape)}"
        elif not one.is_floating_point():
            yield f"{name} has dtype {str(one.dtype).removeprefix('torch.')}, not a float"
        elif not bool(one.float().isfinite().all()):
            yield f"{name} has numbers that are not finite"
    for name, one in found.items():
        known = model.constants.get(name)
        if known is not None:
            if not (isinstance(one, Tensor) and torch.equal(one.to(known), known)):
                yield f"{name} is frozen (requires_grad=False), and the module has other values"
        elif name not in model.shapes:
            yield f"{name} is unknown"
