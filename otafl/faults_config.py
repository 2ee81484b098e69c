"""Settings of faults to inject: devices that lie about their updates, and a jammer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.config import Config, stackable


class FaultsConfig(Config):
    """What is done on purpose against the training; nothing by default.

    Attackers change their update before it is encoded and normalised, so they keep to the power
    control and to their budgets like everyone.
    """

    byzantine: int = stackable(0, ge=0, description="devices that attack, the first ones")
    attack: Literal["sign_flip", "scale", "gaussian"] = Field(
        "sign_flip",
        description="what an attacker sends: its update times -scale, its update times scale, or "
        "normal noise of scale times its update's norm. Both factors of a product are changed, so "
        "of fedrlr a sign flip multiplies the product by scale squared",
    )
    scale: float = stackable(1.0, gt=0, description="strength of the attack")
    jammer_db: float | None = stackable(
        None,
        description="mean power of a jammer's white noise over the receiver's noise, in dB; it "
        "fades, and the server does not know of it",
    )
