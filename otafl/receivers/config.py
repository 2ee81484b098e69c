"""Settings of receivers: how the server combines its antennas into one, f^H h, and scales what it
receives."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings


class ReceiverConfig(Settings):
    """What every receiver's section may hold."""

    scale: Literal["policy", "mmse"] = Field(
        "policy",
        description="receive scaling: as the power policy sets it, or the one of least mean "
        "squared error for its transmit scalars",
    )


class AutoConfig(ReceiverConfig):
    """The receiver that the power policy is made for; with one antenna none is needed."""

    name: Literal["auto"] = "auto"


class ScalarConfig(ReceiverConfig):
    """The first antenna alone."""

    name: Literal["scalar"] = "scalar"


class MrcConfig(ReceiverConfig):
    """Maximum-ratio combining of the sum of channels, f = sum_k h_k: needs no phases at the
    devices (blind over-the-air computation)."""

    name: Literal["mrc"] = "mrc"


class EigenConfig(ReceiverConfig):
    """First eigenvector of sum_k P_k h_k h_k^H: the most power received."""

    name: Literal["eigen"] = "eigen"


class UniformForcingConfig(ReceiverConfig):
    """Maximises the weakest device's P_k |f^H h_k|^2 by successive convex approximation from the
    first eigenvector (Chen, Qin, Li 2018, "A Uniform-Forcing Transceiver Design for Over-the-Air
    Function Computation")."""

    name: Literal["uniform_forcing"] = "uniform_forcing"
    iterations: int = Field(30, ge=1, description="most steps of the approximation")
