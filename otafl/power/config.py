"""Settings of power-control policies. Symbols: budget P_k on |p_k|^2 m_k, m_k mean symbol power of
device k's payload, g_k = |h_k|^2, N noise variance of one received real, q_k = P_k g_k / m_k."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.config import Config, stackable


class FullConfig(Config):
    """Every device at full power; the receive scalar minimises the mean squared error."""

    name: Literal["full"] = "full"


class CiConfig(Config):
    """Channel inversion by the weakest device: all arrive with the gain min_k q_k, without
    distortion."""

    name: Literal["ci"] = "ci"


class TciConfig(Config):
    """Truncated channel inversion: devices with g_k below the threshold stay silent, the others
    invert with a long-term power constraint (FedRLR's "CI")."""

    name: Literal["tci"] = "tci"
    threshold: float = stackable(0.1, gt=0, description="g_th on |h|^2 times large-scale gain")
    reference: Literal["max", "mean"] = Field(
        "max",
        description="the symbol power that the common scale answers to: the strongest device's "
        "(each within its budget), or the mean over devices (FedRLR's oracle scaling)",
    )
    count_policy_power: bool = Field(
        True, description="the budget counts E|p|^2 = E1(g_th) of the inversion"
    )


class GbmaConfig(Config):
    """Gradient-based multiple access: equal power, phase pre-compensation only (Sery and Cohen
    2020; FedRLR eq. 29)."""

    name: Literal["gbma"] = "gbma"
    gain_target: Literal["auto", "amplitude", "energy"] = Field(
        "auto",
        description="receive scale that makes the mean unbiased: E|h| for a linear sum "
        "(amplitude), sqrt(E|h|^2) for a product of two sums (energy); auto chooses by payload",
    )
    reference: Literal["max", "mean"] = Field(
        "max",
        description="the symbol power that the common scale answers to: the strongest device's "
        "(each within its budget), or the mean over devices (FedRLR's oracle scaling)",
    )
