"""Define the contract of a server optimiser.

Delta = new - old model is the step that the method's own server would take, its
`server_learning_rate` included. An optimiser is for methods alone whose server block "model" [S, P]
moves by averaged increments; other blocks are the method's own affair.

The step is by default the adaptive one, which leaves an optimiser the mean square v to say: the
model moves by eta m / (sqrt(v) + tau) with m = beta_1 m + (1 - beta_1) Delta.

References
----------
Reddi et al. 2021, "Adaptive Federated Optimization", Algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import MODEL, Hyper, Tensors
from otafl.core.renamed import Renamed
from otafl.core.settings import Settings

RATE = "step size of the server, eta"
BETA1 = "share of the last direction that is kept, beta_1"
BETA2 = "share of the last mean square that is kept, beta_2"
TAU = "adaptivity tau, added to the root of the mean square"


class ServerOptimiser(Renamed, Settings):
    """Change the step of a method's server. An optimiser is its settings, the section `server` of a
    scenario."""

    def init(self, server: Tensors, hyper: Hyper) -> Tensors:
        """Return the optimiser's memory at the server's start: m = 0 and v = tau^2, both [S, P].

        Parameters
        ----------
        server : the method's blocks, [S, *shape].
        hyper : the optimiser's stackable fields, [S].

        Returns
        -------
        name -> [S, *shape]
        """
        v = (hyper["tau"][:, None] ** 2).expand_as(server[MODEL])
        return {"m": torch.zeros_like(server[MODEL]), "v": v.clone()}

    def step(
        self, old: Tensors, new: Tensors, memory: Tensors, hyper: Hyper
    ) -> tuple[Tensors, Tensors]:
        """Return the server's blocks and the memory after the step.

        Parameters
        ----------
        old, new : the server's blocks before and after the method's own step.
        memory : as `init` or the last step returned it.
        hyper : as of `init`.
        """
        hyper = {name: value[:, None] for name, value in hyper.items()}
        delta = new[MODEL] - old[MODEL]
        m = torch.lerp(delta, memory["m"], hyper["beta1"])
        v = self.update_mean_square(memory["v"], delta.square(), hyper)
        moved = old[MODEL] + hyper["learning_rate"] * m / (v.sqrt() + hyper["tau"])
        return new | {MODEL: moved}, {"m": m, "v": v}

    def update_mean_square(self, v: Tensor, square: Tensor, hyper: Hyper) -> Tensor:
        """Return the new mean square of increments, [S, P].

        Parameters
        ----------
        v : the last one.
        square : Delta^2.
        hyper : as of `init`, [S, 1].
        """
        raise NotImplementedError
