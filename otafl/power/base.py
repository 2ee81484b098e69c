"""Define the contract of a power policy.

Symbols: budget P_k on |p_k|^2 m_k, m_k mean symbol power of device k's payload, h_k its channel
with large-scale gain, g_k = |h_k|^2, N noise variance of one received real, q_k = P_k g_k / m_k,
eta the receive scaling, c_k the gain with which k arrives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from otafl.core.contracts import ChannelStatistics, Coefficients, Hyper, Link
from otafl.core.settings import Settings

Constraint = Literal["peak", "average", "none"]
Reference = Literal["max", "mean"]
Pair = tuple[Tensor, Tensor]
"""A policy's state that is two tensors."""

REFERENCE = (
    "the symbol power that the common scale answers to: the strongest device's "
    "(each within its budget), or the mean over devices (FedRLR's oracle scaling)"
)
RELATIVE = (
    "the threshold is over the mean large-scale gain of the trial's devices, so that it means the "
    "same with a path loss as without; false: as it is"
)
GAMMA = (
    "gamma itself, |p|^2 = gamma (tci: gamma / |h|^2) of what devices of equal weight send, "
    "whatever the budget, as in FedRLR's figures with gamma = 1; what power results is recorded"
)


class PowerPolicy(Settings):
    """Set transmit and receive scalars of trials and segments. A policy is its settings."""

    receiver: ClassVar[str] = "eigen"
    """The receiver that it is made for, where the server has several antennas."""

    may_be_silent: ClassVar[bool] = False
    """All devices of a trial can be silent in a round."""

    scale_invariant: ClassVar[bool] = True
    """What arrives does not depend on the scale of the symbols: those that are ten times as large
    are sent with a tenth of p. A policy with its own scale says False."""

    example_without_noise: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which noise 200 dB below the power budget plays no part in the error."""

    alone: ClassVar[bool] = False
    """What a device sends with depends on no other device."""

    is_adaptive: ClassVar[bool] = True
    """It sends with less where a round's power budget is below the one that it has planned with;
    else such a round can silence all devices."""

    @property
    def power_constraint(self) -> Constraint:
        """Say whether |p|^2 m <= budget holds in every round ("peak"), over fading and devices
        ("average"), or not at all ("none": ideal gains)."""
        return "peak"

    @property
    def is_inversion(self) -> bool:
        """Say whether all who are on air arrive with gain one, as far as they know their
        channel."""
        return False

    @property
    def needs_variation(self) -> bool:
        """Say whether the link has to tell how much symbols vary over the devices."""
        return False

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Any:
        """Return long-term state: budgets, multipliers.

        Parameters
        ----------
        statistics : of the channel, after the receiver's combining.
        hyper : the policy's stackable fields, [S].
        """
        return None

    @abstractmethod
    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        """Return the new state, and the scalars of a group of segments.

        Parameters
        ----------
        state : as `prepare` or the last call returned it.
        link : what a policy may see.
        """
