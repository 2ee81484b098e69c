"""Server steps: that of the method itself, with momentum, and with adaptive rates."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import MODEL, Hyper, Tensors
from otafl.core.settings import declare_stackable
from otafl.server.base import BETA1, BETA2, RATE, TAU, ServerOptimiser


class Average(ServerOptimiser):
    """Server step of the method itself.

    Examples
    --------
    `server: average`, the default of every scenario.
    """

    name: Literal["average"] = "average"

    def init(self, server: Tensors, hyper: Hyper) -> Tensors:
        return {}

    def step(
        self, old: Tensors, new: Tensors, memory: Tensors, hyper: Hyper
    ) -> tuple[Tensors, Tensors]:
        return new, memory


class Momentum(ServerOptimiser):
    r"""Server step with momentum (FedAvgM).

    Server momentum, with state m [S, P].

    Notes
    -----
    .. math::

        m \leftarrow \beta_1 m + \Delta, \quad w \leftarrow w + \eta m

    References
    ----------
    Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated
        Visual Classification".

    Examples
    --------
    `docs/personalised.md` has a scenario with `server: momentum`.
    """

    name: Literal["momentum"] = "momentum"
    learning_rate: float = declare_stackable(1.0, gt=0, description=RATE)
    beta1: float = declare_stackable(0.9, ge=0, lt=1, description=BETA1)

    def init(self, server: Tensors, hyper: Hyper) -> Tensors:
        return {"m": torch.zeros_like(server[MODEL])}

    def step(
        self, old: Tensors, new: Tensors, memory: Tensors, hyper: Hyper
    ) -> tuple[Tensors, Tensors]:
        eta, beta = hyper["learning_rate"][:, None], hyper["beta1"][:, None]
        m = torch.addcmul(new[MODEL] - old[MODEL], beta, memory["m"])
        return new | {MODEL: torch.addcmul(old[MODEL], eta, m)}, {"m": m}


class Adagrad(ServerOptimiser):
    r"""Adaptive server step with Adagrad's mean square (FedAdagrad).

    FedAdagrad, with state m and v, [S, P].

    Notes
    -----
    In the step m = beta_1 m + (1 - beta_1) Delta, w = w + eta m / (sqrt(v) + tau) the mean square
    is

    .. math::

        v \leftarrow v + \Delta^2.

    References
    ----------
    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.

    Examples
    --------
    `docs/interference.md` has a scenario with `server: adagrad`.
    """

    name: Literal["adagrad"] = "adagrad"
    learning_rate: float = declare_stackable(0.01, gt=0, description=RATE)
    tau: float = declare_stackable(1e-3, gt=0, description=TAU)
    beta1: float = declare_stackable(0.0, ge=0, lt=1, description=BETA1)

    def update_mean_square(self, v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
        return v + square


class Adam(ServerOptimiser):
    r"""Adaptive server step with Adam's mean square (FedAdam).

    FedAdam, with state m and v, [S, P].

    Notes
    -----
    In the step m = beta_1 m + (1 - beta_1) Delta, w = w + eta m / (sqrt(v) + tau) the mean square
    is

    .. math::

        v \leftarrow \beta_2 v + (1 - \beta_2) \Delta^2.

    References
    ----------
    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.

    Examples
    --------
    `docs/interference.md` has a scenario with `server: adam`.
    """

    name: Literal["adam"] = "adam"
    learning_rate: float = declare_stackable(0.01, gt=0, description=RATE)
    tau: float = declare_stackable(1e-3, gt=0, description=TAU)
    beta1: float = declare_stackable(0.9, ge=0, lt=1, description=BETA1)
    beta2: float = declare_stackable(0.99, ge=0, lt=1, description=BETA2)

    def update_mean_square(self, v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
        return hyper["beta2"] * v + (1.0 - hyper["beta2"]) * square


class Yogi(ServerOptimiser):
    r"""Adaptive server step with Yogi's mean square (FedYogi).

    FedYogi, with state m and v, [S, P].

    Notes
    -----
    In the step m = beta_1 m + (1 - beta_1) Delta, w = w + eta m / (sqrt(v) + tau) the mean square
    is

    .. math::

        v \leftarrow v - (1 - \beta_2) \Delta^2 \, \mathrm{sign}(v - \Delta^2).

    References
    ----------
    Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.

    Examples
    --------
    `docs/methods.md` has a scenario with `server: yogi`.
    """

    name: Literal["yogi"] = "yogi"
    learning_rate: float = declare_stackable(0.01, gt=0, description=RATE)
    tau: float = declare_stackable(1e-3, gt=0, description=TAU)
    beta1: float = declare_stackable(0.9, ge=0, lt=1, description=BETA1)
    beta2: float = declare_stackable(0.99, ge=0, lt=1, description=BETA2)

    def update_mean_square(self, v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
        return v - (1.0 - hyper["beta2"]) * square * torch.sign(v - square)
