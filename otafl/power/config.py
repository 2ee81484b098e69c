"""Settings of power-control policies. Symbols: budget P_k on |p_k|^2 m_k, m_k mean symbol power of
device k's payload, h_k its channel with large-scale gain, g_k = |h_k|^2, N noise variance of one
received real, q_k = P_k g_k / m_k, eta the receive scaling, c_k the gain with which k arrives."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from otafl.core.settings import CustomSettings, Settings, stackable

_REFERENCE = (
    "the symbol power that the common scale answers to: the strongest device's "
    "(each within its budget), or the mean over devices (FedRLR's oracle scaling)"
)


class PowerConfig(Settings):
    """What every policy's section may hold. receiver: the one it is made for, where the server has
    several antennas."""

    receiver: ClassVar[str] = "eigen"


class NoneConfig(PowerConfig):
    """No power control: ideal gains. All devices arrive with c_k = 1 whatever power that takes; the
    noise is that of the average device at full power. A bound for the others, not a policy to
    build."""

    name: Literal["none"] = "none"


class FullConfig(PowerConfig):
    """Every device at full power; the receive scalar minimises the mean squared error."""

    name: Literal["full"] = "full"


class CiConfig(PowerConfig):
    """Channel inversion by the weakest device: all arrive with the gain min_k q_k, without
    distortion."""

    receiver: ClassVar[str] = "uniform_forcing"

    name: Literal["ci"] = "ci"


class MultiAntennaCiConfig(PowerConfig):
    """Channel inversion of f^H h_k, by the weakest device, behind a uniform-forcing receive vector
    f (Chen, Qin, Li 2018); with one antenna it is `ci`."""

    receiver: ClassVar[str] = "uniform_forcing"

    name: Literal["multi_antenna_ci"] = "multi_antenna_ci"


_RELATIVE = (
    "the threshold is over the mean large-scale gain of the trial's devices, so that it means the "
    "same with a path loss as without; false: as it is"
)

_GAMMA = (
    "gamma itself, |p|^2 = gamma (tci: gamma / |h|^2) of what devices of equal weight send, "
    "whatever the budget, as in FedRLR's figures with gamma = 1; what power results is recorded"
)


class TciConfig(PowerConfig):
    """Truncated channel inversion: devices with g_k below the threshold stay silent, the others
    invert with a long-term power constraint (FedRLR's "CI")."""

    name: Literal["tci"] = "tci"
    threshold: float = stackable(0.1, gt=0, description="g_th on |h|^2 times large-scale gain")
    relative: bool = Field(True, description=_RELATIVE)
    reference: Literal["max", "mean"] = Field("max", description=_REFERENCE)
    count_policy_power: bool = Field(
        True, description="the budget counts E|p|^2 = E1(g_th) of the inversion"
    )
    constraint: Literal["average", "peak"] = Field(
        "average",
        description="the budget is one on the average over fading, or one on every round: the "
        "device at the threshold is then at its budget",
    )
    gamma: float | None = Field(None, gt=0, description=_GAMMA)

    @model_validator(mode="after")
    def _a_peak_is_no_mean(self) -> Self:
        if self.constraint == "peak" and self.gamma is not None:
            raise ValueError(
                "gamma sets the power whatever the budget, so constraint: peak does not go with it"
            )
        if self.constraint == "peak" and (self.reference == "mean" or not self.count_policy_power):
            raise ValueError(
                "constraint: peak bounds each device's power in every round, so reference: mean "
                "and count_policy_power: false do not go with it; leave them out, or take "
                "constraint: average"
            )
        return self


class GbmaConfig(PowerConfig):
    """Gradient-based multiple access: equal power, phase pre-compensation only (Sery and Cohen
    2020; FedRLR eq. 29)."""

    name: Literal["gbma"] = "gbma"
    gain_target: Literal["auto", "amplitude", "energy"] = Field(
        "auto",
        description="receive scale that makes the mean unbiased: E|h| for a linear sum "
        "(amplitude), sqrt(E|h|^2) for a product of two sums (energy); auto chooses by payload",
    )
    reference: Literal["max", "mean"] = Field("max", description=_REFERENCE)
    gamma: float | None = Field(None, gt=0, description=_GAMMA)


class CotafConfig(PowerConfig):
    """Time-varying precoding: the common scale follows the power of the updates, devices below an
    amplitude are silent, the others invert down to it (Sery, Shlezinger, Cohen, Eldar 2021)."""

    name: Literal["cotaf"] = "cotaf"
    h_min: float = stackable(
        0.1, gt=0, description="least |h| (times the root of the large-scale gain) that sends"
    )
    relative: bool = Field(True, description=_RELATIVE)


class CaoStaticConfig(PowerConfig):
    """Least mean squared error for each fading state under peak power: weak devices at full power,
    the others invert (Cao, Zhu, Xu, Huang 2020)."""

    name: Literal["cao_static"] = "cao_static"


class CaoAverageConfig(PowerConfig):
    """Least mean squared error over fading under average power: regularised channel inversion, with
    multipliers planned on the channel's statistics (Cao, Zhu, Xu, Huang 2020)."""

    name: Literal["cao_average"] = "cao_average"
    draws: int = Field(
        2048,
        ge=64,
        description="most fading states that the multipliers are planned on (fewer with over 32 "
        "devices): budgets are met on them, and within some per cent on others",
    )
    reference: Literal["max", "mean"] = Field("max", description=_REFERENCE)


class SmcvConfig(PowerConfig):
    """Gradient-statistics-aware: least mean squared error under peak power of symbols that share a
    mean over devices (Zhang and Tao 2021)."""

    name: Literal["smcv"] = "smcv"
    variation: float | None = stackable(
        None,
        ge=0,
        description="beta, squared multivariate coefficient of variation of the symbols; if not "
        "given, that of each round's, which is side information",
    )


class BlindConfig(PowerConfig):
    """No channel knowledge at the devices: full power, no phase; the server combines many antennas
    by the sum of channels (Amiri, Duman, Gunduz 2021)."""

    receiver: ClassVar[str] = "mrc"

    name: Literal["blind"] = "blind"


class OpenLoopConfig(PowerConfig):
    """Open-loop control with fractional path-loss compensation, 3GPP TS 38.213 section 7.1.1: power
    min(P_max, P_0 + alpha PL) in dB; the receive scalar minimises the mean squared error."""

    name: Literal["open_loop"] = "open_loop"
    alpha: float = stackable(
        1.0, ge=0, le=1, description="share of the path loss (in dB) that is compensated"
    )
    p0_db: float = stackable(
        20.0, description="power received at full compensation, dB over the noise in the band"
    )


class BudgetPacedConfig(PowerConfig):
    """Truncated channel inversion by devices with energy for life: each paces what it has left over
    the slots ahead, and is silent where its share does not reach the common receive level (after
    Zhu, Wang, Huang 2020)."""

    name: Literal["budget_paced"] = "budget_paced"
    energy_db: float | None = stackable(
        -3.0,
        le=0,
        description="energy a slot, in dB over that of a slot at full power; a device has `rounds` "
        "times as much for life. null: what its battery has left alone",
    )
    rounds: int = stackable(
        100,
        ge=1,
        description="slots that the energy is to last for; in later ones a device may spend all "
        "that is left",
    )
    burst: float = stackable(
        2.0, ge=1, description="a slot's energy may be so many times the even share of what is left"
    )
    spend: Literal["even", "greedy"] = Field(
        "even",
        description="paced over the slots ahead, or as much as full power takes until it is gone",
    )


class LyapunovConfig(PowerConfig):
    """Drift plus penalty (Neely 2010): in every slot the least of V times the squared error plus
    energies priced by virtual queues, which keep each device's average energy within its bound."""

    name: Literal["lyapunov"] = "lyapunov"
    v: float = stackable(
        3.0,
        gt=0,
        description="V, weight of the squared error (over the devices' mean symbol power): larger "
        "ones lower it, and let the average energy settle later",
    )
    average_db: float = stackable(
        -3.0,
        le=0,
        description="bound on a device's average energy a slot, dB over that of a slot at full "
        "power",
    )


class CustomPowerConfig(PowerConfig, CustomSettings):
    """A policy of the user's own: `module:function`, called with the link and the section's other
    keys, returning transmit scalars p [S, Q, K] and receive scaling eta [S, Q]."""

    model_config = ConfigDict(extra="allow", frozen=True)
