"""Adaptive server step with Adam's mean square (FedAdam).

References
----------
Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from otafl.core.contracts import Hyper
from otafl.core.settings import declare_stackable
from otafl.server.base import BETA1, BETA2, RATE, TAU, ServerOptimiser


class Adam(ServerOptimiser):
    r"""FedAdam, with state m and v, [S, P].

    Notes
    -----
    In the step m = beta_1 m + (1 - beta_1) Delta, w = w + eta m / (sqrt(v) + tau) the mean square
    is

    .. math::

        v \leftarrow \beta_2 v + (1 - \beta_2) \Delta^2.

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
