"""Settings of codecs: what happens to a payload between the algorithm and the transport."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.config import Config


class IdentityConfig(Config):
    """The payload as it is: 32 bits a real on a digital uplink."""

    name: Literal["identity"] = "identity"


class UniformConfig(Config):
    """Uniform quantisation between each block's smallest and largest value (FedRLR, baseline 4)."""

    name: Literal["uniform"] = "uniform"
    bits: int = Field(8, ge=1, le=24, description="bits a real")
