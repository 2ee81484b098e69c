"""Models of one fully connected layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from otafl.core.choices import declare_choice
from otafl.core.contracts import Batch, Tensors
from otafl.models.base import LOSS, Draw, Model, ModelSettings
from otafl.models.layer_contract import Part, make_sequence
from otafl.models.layered import LayeredModel
from otafl.models.linear_layer import BiasStart, make_chain


class SoftmaxRegression(LayeredModel):
    """One fully connected layer: softmax or multinomial logistic regression (MCLR).

    The problem is convex, so all parameters start at zero, or uniform in +-1/sqrt(inputs).

    The parameters are "weight0" and "bias0".

    Examples
    --------
    `studies/published/majority_votes.yaml` trains it.
    """

    class Settings(ModelSettings):
        name: Literal["softmax_regression"] = "softmax_regression"
        start: Any = declare_choice(
            "start",
            "start of the weights: zero, uniform in +-1/sqrt(inputs), or from elsewhere",
            words=("zero", "uniform"),
        )

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        sides = math.prod(input_shape), classes
        own: BiasStart = "uniform" if settings.start == "uniform" else "zero"
        super().__init__(make_chain(sides), bias_start=own)

    def init(self, draw: Draw) -> Tensors:
        params = super().init(draw)
        if self.bias_start == "uniform":
            return params
        return {name: torch.zeros_like(block) for name, block in params.items()}


WEIGHT, BIAS = "weight0", "bias0"


class LinearModel(Model):
    """Predict by one affine layer, f(x) = x W + b: linear regression, or ridge regression.

    Under the squared loss the objective is quadratic,

        F(W, b) = mean of |x W + b - y|^2 / 2 + ridge |W|^2 / 2,

    so its optimum is known and results have `excess_risk`. The bias is not penalised. With other
    losses the model is that of `softmax_regression`, with a penalty. All parameters start at zero,
    or uniform in +-1/sqrt(inputs).

    The parameters are "weight0" [inputs, outputs] and, with a bias, "bias0" [outputs].

    Examples
    --------
    >>> import torch
    >>> model = LinearModel(LinearModel.Settings(bias=False), (3,), 1)
    >>> model.logits({"weight0": torch.ones(1, 3, 1)}, torch.ones(1, 2, 3))
    tensor([[[3.],
             [3.]]])
    """

    is_affine = True

    class Settings(ModelSettings):
        name: Literal["linear"] = "linear"
        bias: bool = True
        """an intercept for each output"""
        ridge: float = Field(0.0, ge=0)
        """weight of the penalty |W|^2 / 2 in the training objective"""
        start: Any = declare_choice(
            "start",
            "start of the weights: zero, uniform in +-1/sqrt(inputs), or from elsewhere",
            words=("zero", "uniform"),
        )

    def __init__(self, settings: Settings, input_shape: tuple[int, ...], classes: int) -> None:
        self.inputs, self.outputs = math.prod(input_shape), classes
        self.ridge, self._settings = settings.ridge, settings
        self.has_intercept = settings.bias
        self.shapes = {WEIGHT: (self.inputs, classes)}
        if settings.bias:
            self.shapes[BIAS] = (classes,)
        self.macs = self.first_macs = self.inputs * classes
        self.elementwise = (LOSS + int(settings.bias)) * classes

    def init(self, draw: Draw) -> Tensors:
        params = self.draw_random_start(draw)
        if self._settings.start == "uniform":
            return params
        return {name: torch.zeros_like(block) for name, block in params.items()}

    def draw_random_start(self, draw: Draw) -> Tensors:
        width = 2.0 / self.inputs**0.5
        return {name: width * (draw(name, shape) - 0.5) for name, shape in self.shapes.items()}

    def logits(self, params: Mapping[str, Any], x: Tensor) -> Tensor:
        weight = params[WEIGHT]
        scores = torch.bmm(x.flatten(2).expand(len(weight), -1, -1), weight)
        return scores + params[BIAS][:, None] if BIAS in self.shapes else scores

    def compute_gradients(self, params: Tensors, batch: Batch) -> tuple[Tensor, Tensors]:
        x, weight = batch.x.flatten(2), params[WEIGHT]
        loss, g = self.loss.compute_gradient_(self.logits(params, x), batch)
        grads = {WEIGHT: torch.bmm(x.mT, g)}
        if BIAS in self.shapes:
            grads[BIAS] = g.sum(1)
        if self.ridge:
            loss = loss + 0.5 * self.ridge * weight.square().sum((1, 2))
            grads[WEIGHT].add_(weight, alpha=self.ridge)
        return loss, grads

    def build_module(
        self, params: Mapping[str, Tensor], input_shape: tuple[int, ...]
    ) -> nn.Module | None:
        layer = make_sequence([Part(params[WEIGHT].mT)], params.get(BIAS))
        return nn.Sequential(nn.Flatten(), layer)
