"""Settings of the methods that FedRLR is compared with (Xue and Lau, "Riemannian Low-Rank Model
Compression for Federated Learning with Over-the-Air Aggregation", section VI). In all of them the
devices start a round from the broadcast model and send the model itself."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.algorithms.config import Needs
from otafl.core.settings import Settings, stackable

_RATE = "SGD step of the first round; the default is that of FedRLR's experiments, 2 / 1000"
_DECAY = "the step of round t is learning_rate / (1 + decay t); FedRLR: 2 / (1000 + t)"
_BIASES = "biases carried free of error and uncounted, or over the uplink"


class FedMiDConfig(Settings):
    """Federated mirror descent with a nuclear norm: proximal SGD at the devices, singular values
    thresholded, and a proximal step at the server (Yuan, Zaheer, Reddi 2021; FedRLR, baseline
    1)."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["fedmid"] = "fedmid"
    learning_rate: float = stackable(0.002, gt=0, description=_RATE)
    decay: float = stackable(0.001, ge=0, description=_DECAY)
    nuclear_weight: float = stackable(
        5e-4, ge=0, description="lambda, the weight of the nuclear norm in the loss"
    )
    server_prox: bool = Field(
        True,
        description="the server thresholds the received mean's singular values too, by lambda "
        "times the sum of a device's steps in the round",
    )
    bias_mode: Literal["ideal", "ota"] = Field("ideal", description=_BIASES)


class ProxSgdConfig(Settings):
    """Proximal SGD with an l1 norm: soft-thresholded after each step (Yang et al. 2020; FedRLR,
    baseline 2)."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["prox_sgd"] = "prox_sgd"
    learning_rate: float = stackable(0.002, gt=0, description=_RATE)
    decay: float = stackable(0.001, ge=0, description=_DECAY)
    l1_weight: float = stackable(
        0.02, ge=0, description="lambda, the weight of the l1 norm in the loss"
    )
    momentum: bool = Field(
        False,
        description="steps along v = (1 - rho) v + rho g (ProxSGD's form), kept by each device "
        "between rounds, in place of along the gradient g",
    )
    rho: float = stackable(
        0.1, gt=0, le=1, description="share of the newest gradient in v; momentum: true alone"
    )
    bias_mode: Literal["ideal", "ota"] = Field("ideal", description=_BIASES)


class MagnitudePruningConfig(Settings):
    """Local SGD, then the smallest weights set to zero (Frankle et al. 2020; FedRLR, baseline
    3)."""

    needs: ClassVar[Needs] = "mean"

    name: Literal["magnitude_pruning"] = "magnitude_pruning"
    learning_rate: float = stackable(0.002, gt=0, description=_RATE)
    decay: float = stackable(0.001, ge=0, description=_DECAY)
    keep: float = Field(0.03125, gt=0, le=1, description="share of the weights that is kept")
    scope: Literal["layer", "global"] = Field(
        "layer", description="the largest of each layer are kept, or of all layers together"
    )
    bias_mode: Literal["ideal", "ota"] = Field("ideal", description=_BIASES)
