"""Settings of models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from otafl.config import Config, CustomConfig


class MlpConfig(Config):
    """Fully connected layers with ReLU between them; weights start uniform in
    +-1/sqrt(fan_in), biases at zero."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (100,), min_length=1, description="widths of the hidden layers"
    )


class SoftmaxRegressionConfig(Config):
    """One fully connected layer (multinomial logistic regression, MCLR), started at zero."""

    name: Literal["softmax_regression"] = "softmax_regression"


class CustomModelConfig(CustomConfig):
    """A model of the user's own: `module:callable`, called with `input_shape`, `classes` and the
    section's other keys, returning a `torch.nn.Module` or an `otafl.models.Model`."""
