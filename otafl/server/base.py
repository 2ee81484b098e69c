"""Define the contract of a server optimiser, and what the adaptive ones share.

Delta = new - old model is the step that the method's own server would take, its
`server_learning_rate` included. An optimiser is for methods alone whose server block "model" [S, P]
moves by averaged increments; other blocks are the method's own affair.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from otafl.core.contracts import MODEL, Blocks, Hyper
from otafl.core.settings import Settings

RATE = "step size of the server, eta"
BETA1 = "share of the last direction that is kept, beta_1"
BETA2 = "share of the last mean square that is kept, beta_2"
TAU = "adaptivity tau, added to the root of the mean square"


class ServerOptimiser(Settings):
    """Change the step of a method's server. An optimiser is its settings, the section `server` of a
    scenario."""

    def init(self, server: Blocks, hyper: Hyper) -> Blocks:
        """Return the optimiser's memory at the server's start; none by default.

        Parameters
        ----------
        server : the method's blocks, [S, *shape].
        hyper : the optimiser's stackable fields, [S].

        Returns
        -------
        name -> [S, *shape]
        """
        return {}

    @abstractmethod
    def step(self, old: Blocks, new: Blocks, memory: Blocks, hyper: Hyper) -> tuple[Blocks, Blocks]:
        """Return the server's blocks and the memory after the step.

        Parameters
        ----------
        old, new : the server's blocks before and after the method's own step.
        memory : as `init` or the last step returned it.
        hyper : as of `init`.
        """


def adaptive_init(server: Blocks, hyper: Hyper) -> Blocks:
    """Return m = 0 and v = tau^2, both [S, P]."""
    start = (hyper["tau"][:, None] ** 2).expand_as(server[MODEL])
    return {"m": torch.zeros_like(server[MODEL]), "v": start.clone()}


def adaptive_step(
    old: Blocks,
    new: Blocks,
    memory: Blocks,
    hyper: Hyper,
    square: Callable[[Tensor, Tensor, Hyper], Tensor],
) -> tuple[Blocks, Blocks]:
    """Return what `ServerOptimiser.step` does: m = beta_1 m + (1 - beta_1) Delta, and the model
    moves by eta m / (sqrt(v) + tau).

    square : (v, Delta^2, hyper [S, 1]) -> v, the new mean square.
    """
    hyper = {name: value[:, None] for name, value in hyper.items()}
    delta = new[MODEL] - old[MODEL]
    m = torch.lerp(delta, memory["m"], hyper["beta1"])
    v = square(memory["v"], delta.square(), hyper)
    moved = old[MODEL] + hyper["learning_rate"] * m / (v.sqrt() + hyper["tau"])
    return new | {MODEL: moved}, {"m": m, "v": v}
