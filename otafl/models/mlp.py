"""Fully connected layers with ReLU between them (multilayer perceptron, MLP).

Weights start uniform in +-1/sqrt(fan_in), with standard deviation 1/sqrt(3 fan_in). Biases start at
zero, or like the weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.compiled_module import load_loops
from otafl.core.contracts import LocalData
from otafl.losses.cross_entropy import CrossEntropy
from otafl.models.base import Count, Model
from otafl.models.layer_contract import Channels
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import DropoutSettings, make_chain
from otafl.models.network import Network
from otafl.models.softmax_regression import SoftmaxRegression


class Mlp(LayeredModel):
    """Multilayer perceptron.

    The parameters are "weight0", "bias0", ... of the layers in their order.

    Examples
    --------
    `scenarios/waveform.yaml` trains it.
    """

    class Settings(DropoutSettings):
        example: ClassVar[Mapping[str, Any]] = {"model.hidden": [4]}

        name: Literal["mlp"] = "mlp"
        hidden: tuple[Count, ...] = Field((100,), min_length=1)
        """widths of the hidden layers"""

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        widths = [math.prod(input_shape), *settings.hidden, classes]
        layers = make_chain(widths, settings.slope)
        super().__init__(layers, None, settings.bias_start, settings.dropout)

    def build_network(self, channels: Channels) -> Network:
        return self.narrow(channels)


MAX_WEIGHTS = 1 << 17
"""Largest number of weights for the compiled training; more leave the second-level cache."""

MAX_LATER_WEIGHTS = 1 << 13
"""Largest number of weights behind the first layer; for more, tensor operations are faster at some
sizes."""

MAX_SAMPLES = 1 << 20
"""Largest number of samples of all rows and steps whose indices are kept at once, in 8 MB."""

MAX_PRODUCTS = 1 << 25
"""Largest number of products with weights for which one thread is faster than three or more."""


def choose_kernel(model: Model, received: Tensor, work: LocalData) -> Callable[..., Tensor] | None:
    """Choose how plain SGD trains rows from received parameters.

    Parameters
    ----------
    model : Model
        Model.
    received : Tensor [n, P]
        Parameters of the rows.
    work : LocalData
        Local data of the rows.

    Returns
    -------
    callable or None
        Map from samples, received parameters, step sizes and memory for the increments to losses:
        `dense_kernel.write_increments` for softmax regression, and a perceptron without dropout,
        with the cross-entropy in float32 on a CPU, up to the sizes `MAX_WEIGHTS`,
        `MAX_LATER_WEIGHTS`, `MAX_SAMPLES` and, if torch has more than two threads, `MAX_PRODUCTS`.
        Otherwise, and without Numba, None for tensor operations.
    """
    if type(model) not in (Mlp, SoftmaxRegression) or type(model.loss) is not CrossEntropy:
        return None
    assert isinstance(model, LayeredModel)
    samples = len(received) * work.steps * work.batch_size
    fits = samples <= MAX_SAMPLES and model.macs <= MAX_WEIGHTS
    fits = fits and model.macs - model.first_macs <= MAX_LATER_WEIGHTS
    fits = fits and (torch.get_num_threads() <= 2 or samples * model.macs <= MAX_PRODUCTS)
    if not fits or model.uses_dropout or received.dtype != torch.float32:
        return None
    kernel = load_loops("otafl.models.dense_kernel", received.device)
    if kernel is None:
        return None
    widths = model.layers[0].inputs, *(layer.outputs for layer in model.layers)
    return functools.partial(kernel.write_increments, widths, model.leaky_slope)
