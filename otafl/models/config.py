"""Settings of models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otafl.core.settings import CustomSettings, Settings


class ActivationConfig(Settings):
    """What networks of layers share."""

    activation: Literal["relu", "leaky_relu"] = Field(
        "relu", description="what follows each layer but the last"
    )
    leaky_slope: float = Field(
        0.1, gt=0, lt=1, description="slope of leaky_relu below zero; relu has none"
    )
    bias_start: Literal["zero", "uniform"] = Field(
        "zero", description="biases start at zero, or uniform in +-1/sqrt(fan_in) as in PyTorch"
    )

    @property
    def slope(self) -> float:
        """Of the activation below zero."""
        return self.leaky_slope if self.activation == "leaky_relu" else 0.0


class MlpConfig(ActivationConfig):
    """Fully connected layers with ReLU between them; weights start uniform in
    +-1/sqrt(fan_in)."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (100,), min_length=1, description="widths of the hidden layers"
    )


class CnnConfig(ActivationConfig):
    """Convolutions, each with max-pooling and ReLU, then fully connected layers with ReLU; weights
    start uniform in +-1/sqrt(fan_in). Samples are images: [height, width],
    [channels, height, width], or a square number of grey pixels. On 28x28 pixels, channels [6, 16],
    padding valid and hidden [120, 84] are LeNet-5 (LeCun et al. 1998) with max-pooling and ReLU,
    44,426 parameters (62,006 on CIFAR-10); channels [32, 64] and hidden [512] are the network of
    McMahan et al. 2017, section 3, 1,663,370 parameters."""

    name: Literal["cnn"] = "cnn"
    channels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (16, 32), min_length=1, description="output channels of each convolution"
    )
    kernel: int = Field(5, ge=1, description="side of the convolutions' windows in pixels")
    stride: int = Field(1, ge=1, description="step of the convolutions' windows in pixels")
    padding: Literal["same", "valid"] = Field(
        "same",
        description="zeros around an image, so that the window has a place at every pixel (of "
        "every stride), or none",
    )
    pool: int = Field(
        2, ge=1, description="side of the max-pooling after each convolution in pixels; 1 for none"
    )
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (128,), description="widths of the fully connected layers before the last; may be empty"
    )

    @model_validator(mode="after")
    def _same_has_a_middle(self) -> CnnConfig:
        if self.padding == "same" and self.kernel % 2 == 0:
            raise ValueError(
                f"padding: 'same' needs a window with a middle pixel, and kernel is {self.kernel}; "
                f"kernel: {self.kernel + 1} or padding: valid would do"
            )
        return self


class SoftmaxRegressionConfig(Settings):
    """One fully connected layer (multinomial logistic regression, MCLR)."""

    name: Literal["softmax_regression"] = "softmax_regression"
    start: Literal["zero", "uniform"] = Field(
        "zero",
        description="weights and biases start at zero, or uniform in +-1/sqrt(inputs) as in "
        "PyTorch",
    )


class LstmConfig(Settings):
    """Long short-term memory over sequences, then fully connected layers with leaky ReLU between
    them; the sentiment model of Shi et al. 2023, appendix C, and (bidirectional, classifier
    [5000]) of its code. Samples are sequences [length, features], or [length] of single numbers.
    The classifier sees the last state of the upper layer; with two directions it sees both at the
    last position and both at the end of their way, the forward one twice then. Weights and biases
    start uniform, +-1/sqrt(hidden) in the LSTM and +-1/sqrt(fan_in) in the classifier."""

    name: Literal["lstm"] = "lstm"
    hidden: int = Field(50, ge=1, description="units of a layer, in each direction")
    layers: int = Field(2, ge=1, description="LSTM layers, one above the other")
    bidirectional: bool = Field(False, description="read the sequence in both directions")
    classifier: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (100,), description="widths of the fully connected layers before the last; may be empty"
    )
    leaky_slope: float = Field(
        0.1, ge=0, lt=1, description="slope below zero between the classifier's layers; 0 is ReLU"
    )


class CustomModelConfig(CustomSettings):
    """A model of the user's own: `module:callable`, called with `input_shape`, `classes` and the
    section's other keys, returning a `torch.nn.Module` or an `otafl.models.Model`."""
