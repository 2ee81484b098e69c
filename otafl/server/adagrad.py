"""Adaptive server step with Adagrad's mean square (FedAdagrad).

References
----------
Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.core.contracts import Hyper
from otafl.core.settings import declare_stackable
from otafl.server.base import BETA1, RATE, TAU, ServerOptimiser


class Adagrad(ServerOptimiser):
    r"""FedAdagrad, with state m and v, [S, P].

    Notes
    -----
    In the step m = beta_1 m + (1 - beta_1) Delta, w = w + eta m / (sqrt(v) + tau) the mean square
    is

    .. math::

        v \leftarrow v + \Delta^2.

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
