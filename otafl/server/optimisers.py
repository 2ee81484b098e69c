"""Server steps: that of the method itself, with momentum, and with adaptive rates.

A server optimiser replaces the step of methods whose server tensor "model" [S, P] moves by averaged
increments. Other tensors stay with the method.

References
----------
Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from otafl.core.contracts import MODEL, Hyper, Tensors
from otafl.core.settings import Settings, declare_stackable

RATE = "step size of the server, eta"
BETA1 = "share of the last direction in the next one, beta_1"
BETA2 = "share of the last mean square in the next one, beta_2"
TAU = "adaptivity tau, added to the root of the mean square"


class ServerOptimiser(Settings):
    r"""Optimiser of a method's server step; it is also its settings, the section `server`.

    Notes
    -----
    Delta is the step new - old of the method's own server, with its `server_learning_rate`. The
    default is the adaptive step of Algorithm 2, in which an optimiser defines the mean square v:

    .. math::

        m \leftarrow \beta_1 m + (1 - \beta_1) \Delta, \quad w \leftarrow w + \eta \frac{m}{\sqrt{v}
        + \tau}

    m starts at 0, and v at tau^2.
    """

    def init(self, server: Tensors, hyper: Hyper) -> Tensors:
        """Return the optimiser's state at the start.

        Parameters
        ----------
        server : dict of str to Tensor [S, *shape]
            State of the method's server.
        hyper : mapping of str to Tensor [S]
            Stackable settings of the optimiser.

        Returns
        -------
        dict of str to Tensor [S, *shape]
            By default m = 0 and v = tau^2, [S, P] each.
        """
        v = (hyper["tau"][:, None] ** 2).expand_as(server[MODEL])
        return {"m": torch.zeros_like(server[MODEL]), "v": v.clone()}

    def step(
        self, old: Tensors, new: Tensors, memory: Tensors, hyper: Hyper
    ) -> tuple[Tensors, Tensors]:
        """Return the server's state and the optimiser's state after a step.

        Parameters
        ----------
        old, new : dict of str to Tensor [S, *shape]
            State of the server before and after the method's own step.
        memory : dict of str to Tensor [S, *shape]
            State of the optimiser.
        hyper : mapping of str to Tensor [S]
            Stackable settings of the optimiser.

        Returns
        -------
        server : dict of str to Tensor [S, *shape]
            New state of the server.
        memory : dict of str to Tensor [S, *shape]
            New state of the optimiser.
        """
        hyper = {name: value[:, None] for name, value in hyper.items()}
        delta = new[MODEL] - old[MODEL]
        m = torch.lerp(delta, memory["m"], hyper["beta1"])
        v = self.update_mean_square(memory["v"], delta.square(), hyper)
        moved = old[MODEL] + hyper["learning_rate"] * m / (v.sqrt() + hyper["tau"])
        return new | {MODEL: moved}, {"m": m, "v": v}

    def update_mean_square(self, v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
        """Return the new mean square of increments.

        Parameters
        ----------
        v : Tensor [S, P]
            Last mean square.
        square : Tensor [S, P]
            Delta^2.
        hyper : mapping of str to Tensor [S, 1]
            Stackable settings of the optimiser.

        Returns
        -------
        Tensor [S, P]
            New mean square.
        """
        raise NotImplementedError


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
    `studies/laser/laser_figure.yaml` has `server: {name: momentum, beta1: 0.9}`.
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
