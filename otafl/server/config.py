"""Settings of server optimisers (Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2;
FedAvgM: Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for
Federated Visual Classification"). Delta is the step that the method's own server would take, its
`server_learning_rate` included."""

from __future__ import annotations

from typing import Literal

from otafl.core.settings import Settings, stackable

_RATE = "step size of the server, eta"
_BETA1 = "share of the last direction that is kept, beta_1"
_BETA2 = "share of the last mean square that is kept, beta_2"
_TAU = "adaptivity tau, added to the root of the mean square"


class AverageConfig(Settings):
    """The method's own server step."""

    name: Literal["average"] = "average"


class MomentumConfig(Settings):
    """FedAvgM: m = beta_1 m + Delta, the model moves by eta m."""

    name: Literal["momentum"] = "momentum"
    learning_rate: float = stackable(1.0, gt=0, description=_RATE)
    beta1: float = stackable(0.9, ge=0, lt=1, description=_BETA1)


class AdaptiveConfig(Settings):
    """What the adaptive optimisers have in common: m = beta_1 m + (1 - beta_1) Delta, and the model
    moves by eta m / (sqrt(v) + tau); v starts at tau^2."""

    learning_rate: float = stackable(0.01, gt=0, description=_RATE)
    tau: float = stackable(1e-3, gt=0, description=_TAU)


class AdagradConfig(AdaptiveConfig):
    """FedAdagrad: v = v + Delta^2."""

    name: Literal["adagrad"] = "adagrad"
    beta1: float = stackable(0.0, ge=0, lt=1, description=_BETA1)


class AdamConfig(AdaptiveConfig):
    """FedAdam: v = beta_2 v + (1 - beta_2) Delta^2."""

    name: Literal["adam"] = "adam"
    beta1: float = stackable(0.9, ge=0, lt=1, description=_BETA1)
    beta2: float = stackable(0.99, ge=0, lt=1, description=_BETA2)


class YogiConfig(AdaptiveConfig):
    """FedYogi: v = v - (1 - beta_2) Delta^2 sign(v - Delta^2)."""

    name: Literal["yogi"] = "yogi"
    beta1: float = stackable(0.9, ge=0, lt=1, description=_BETA1)
    beta2: float = stackable(0.99, ge=0, lt=1, description=_BETA2)
