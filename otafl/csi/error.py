"""Normal error of the channel that devices and server know.

The estimate is h + e, e ~ CN(0, variance), independent over devices and rounds. Each path by which
a reflecting surface is set has an error of its own with the same variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from otafl.core.contracts import unsqueeze_like
from otafl.core.rng import declare_family, declare_purpose
from otafl.core.settings import declare_stackable
from otafl.csi.base import Csi, draw_device_errors, draw_path_errors

ERROR = declare_purpose("csi_error", __name__)
PATH_ERROR = declare_family("csi_path_error", __name__)


class NormalError(Csi):
    """Normal estimation error. Study: `studies/physical_layer/nmse_csi.yaml`."""

    class Settings(Csi.Settings):
        name: Literal["error"] = "error"
        variance: float = declare_stackable(0.01, ge=0)
        """variance of the estimation error, at E|h|^2 = 1"""

    @property
    def variance(self) -> Tensor:
        return self.hyper["variance"]

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        r"""Return h + e, complex [S, K, A, B, F].

        Notes
        -----
        .. math::

            \hat h = h + e, \quad e \sim CN(0, \sigma_e^2)
        """
        variance = unsqueeze_like(self.variance, h)
        return h + draw_device_errors(self.streams, ERROR, round, h, variance)

    def estimate_paths(self, paths: Callable[[int], Tensor], gain: Tensor, round: int) -> Tensor:
        true = paths(round)
        variance = unsqueeze_like(self.variance, true)
        return true + draw_path_errors(self.streams, PATH_ERROR, round, true, variance)
