"""Contract of a server optimiser.

A server optimiser replaces the step of methods whose server tensor "model" [S, P] moves by averaged
increments. Other tensors stay with the method.

References
----------
Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import MODEL, Hyper, Tensors
from otafl.core.settings import Settings

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
