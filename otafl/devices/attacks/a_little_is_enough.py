r"""Send the honest mean less z honest standard deviations in each coordinate.

The attackers know the updates of the honest devices of the round. Of n devices, b of them
attackers, s = floor(n/2 + 1) - b honest ones must be further from the mean than the attackers for
these to be in the majority, which gives

    z = Phi^-1((n - b - s) / (n - b)),

at least 0. The step against the mean is that of the authors' program; their text has both signs.

References
----------
Baruch, Baruch, Goldberg 2019, "A Little Is Enough: Circumventing Defenses For Distributed
    Learning", NeurIPS, Algorithm 3.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Tensors, unsqueeze_like
from otafl.devices.attacks.base import Attack, Attacked

MOST = 1.0 - 1e-6
"""Largest share whose quantile is taken."""


class ALittleIsEnough(Attack):
    """A shift that hides among honest updates."""

    name: Literal["a_little_is_enough"] = "a_little_is_enough"
    deviations: float | None = Field(None, ge=0)
    """z, standard deviations from the honest mean; the largest that hides by the paper's rule if
    not given"""

    def change_update(self, attacked: Attacked) -> Tensors:
        z, trial = self._get_deviations(attacked), attacked.trial[attacked.rows]
        sent = {}
        for name, block in attacked.group.masked_tensors.items():
            mean = attacked.compute_honest_mean(block)
            spread = attacked.compute_honest_deviation(block, mean)
            sent[name] = (mean - unsqueeze_like(z, mean) * spread)[trial]
        return attacked.replace_own(sent)

    def _get_deviations(self, attacked: Attacked) -> Tensor:
        """Return z [S]."""
        found = compute_deviations(*attacked.count_rows())
        return found if self.deviations is None else torch.full_like(found, self.deviations)


def compute_deviations(num_devices: Tensor, num_honest: Tensor) -> Tensor:
    """Compute z [S] of n devices, of which n - b are honest, float [S] each."""
    corrupted = num_devices - num_honest
    supporters = (num_devices / 2.0 + 1.0).floor() - corrupted
    share = (num_honest - supporters) / num_honest.clamp_min(1.0)
    return torch.special.ndtri(share.clamp(0.5, MOST))
