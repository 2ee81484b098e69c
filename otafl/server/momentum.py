"""Server step with momentum (FedAvgM).

References
----------
Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification".
"""

from __future__ import annotations

from typing import Literal

import torch

from otafl.core.contracts import MODEL, Hyper, Tensors
from otafl.core.settings import declare_stackable
from otafl.server.base import BETA1, RATE, ServerOptimiser


class Momentum(ServerOptimiser):
    r"""Server momentum, with state m [S, P].

    Notes
    -----
    .. math::

        m \leftarrow \beta_1 m + \Delta, \quad w \leftarrow w + \eta m

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
