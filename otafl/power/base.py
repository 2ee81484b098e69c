"""Contract of a power policy, which sets transmit scalars and receive scaling.

Symbols: P_k is the budget on |p_k|^2 m_k, m_k the mean symbol power of device k's payload, h_k its
channel with large-scale gain, g_k = |h_k|^2, N the noise variance of one received real number,
q_k = P_k g_k / m_k, eta the receive scaling, and c_k = Re(h_k p_k) / sqrt(eta) the effective gain.
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
"""State of a policy that is two tensors."""

REFERENCE = (
    "symbol power that determines the common scale: the largest of all devices, so that each is "
    "within its budget, or the mean over devices (FedRLR's oracle scaling)"
)
RELATIVE = (
    "whether the threshold is relative to the mean large-scale gain of the trial's devices, so "
    "that it has the same effect with and without a path loss; if false, it is absolute"
)
GAMMA = (
    "gamma, with which |p|^2 = gamma (tci: gamma / |h|^2) for devices of equal weight at any "
    "budget, as in FedRLR's figures with gamma = 1; the resulting power is recorded. By default "
    "the budget determines the power"
)


class PowerPolicy(Settings):
    r"""Rule that sets the transmit and receive scalars of trials and segments.

    A policy is its own settings. `otafl list NAME` prints an example scenario of each
    built-in policy.

    Notes
    -----
    For uncorrelated symbols, the mean squared error of the mean over K devices is

    .. math::

        \frac{1}{K^2} \left( \sum_k m_k (c_k - 1)^2 + \frac{N}{\eta} \right)
    """

    receiver: ClassVar[str] = "eigen"
    """Receiver for which the policy is designed, if the server has several antennas."""

    may_be_silent: ClassVar[bool] = False
    """Whether all devices of a trial can be silent in a round."""

    scale_invariant: ClassVar[bool] = True
    """Whether the received sum does not depend on the scale of the symbols.

    Symbols that are ten times as large are then sent with a tenth of p. A policy with a scale of
    its own declares False.
    """

    example_without_noise: ClassVar[Mapping[str, Any]] = {}
    """Own fields with which noise 200 dB below the power budget has no effect on the error."""

    alone: ClassVar[bool] = False
    """Whether a device's transmit scalar depends on no other device."""

    plans_slots: ClassVar[bool] = False
    """It counts the slots that all devices share, and does not go with groups in slots of their
    own."""

    is_adaptive: ClassVar[bool] = True
    """Whether devices reduce their power if a round's power budget is below the planned one.

    Otherwise such a round can silence all devices.
    """

    @property
    def power_constraint(self) -> Constraint:
        """Kind of the power constraint |p|^2 m <= budget.

        It holds in every round ("peak"), over fading and devices ("average"), or not at all
        ("none": ideal gains).
        """
        return "peak"

    @property
    def is_inversion(self) -> bool:
        """Whether all devices on air arrive with effective gain one, by their channel estimates."""
        return False

    @property
    def needs_variation(self) -> bool:
        """Whether the link must report the variation of symbols over the devices."""
        return False

    def prepare(self, statistics: ChannelStatistics, hyper: Hyper) -> Any:
        """Compute the long-term state, such as budgets and multipliers.

        Parameters
        ----------
        statistics : ChannelStatistics
            Statistics of the channel after the receiver's combining.
        hyper : Hyper
            Stackable fields of the policy, [S] each.

        Returns
        -------
        Any
            State for the first call of `compute_coefficients`.
        """
        return None

    @abstractmethod
    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        """Compute the scalars of a group of segments.

        Parameters
        ----------
        state : Any
            Result of `prepare`, or state of the last call.
        link : Link
            Estimated channels [S, Q, K], budgets, powers and noise.

        Returns
        -------
        tuple of Any and Coefficients
            New state, and transmit scalars p [S, Q, K] with receive scaling eta [S, Q].
        """
