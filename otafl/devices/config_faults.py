"""Settings of faults to inject: devices that lie about their updates, crash, slow down, fade or
send twice, and a jammer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings, stackable


class FaultsConfig(Settings):
    """What is done on purpose against the training; nothing by default.

    Attackers change their update before it is encoded and normalised, so they keep to the power
    control and to their budgets like everyone.
    """

    byzantine: int = stackable(0, ge=0, description="devices that attack, the first ones")
    attack: Literal["sign_flip", "scale", "gaussian", "nan"] = Field(
        "sign_flip",
        description="what an attacker sends: its update times -scale, its update times scale, "
        "normal noise of scale times its update's norm, or what is not a number. Both factors of a "
        "product are changed, so of fedrlr a sign flip multiplies the product by scale squared",
    )
    scale: float = stackable(1.0, gt=0, description="strength of the attack")
    refuse_nonfinite: bool | None = Field(
        None,
        description="whether devices refuse to send an update that is not finite, whatever made it "
        "so; if not given, only where attack is nan. An update that is sent all the same spoils "
        "the model, and the trial ends as diverged",
    )
    jammer_db: float | None = stackable(
        None,
        description="mean power of a jammer's white noise over the receiver's noise, in dB; it "
        "fades, and the server does not know of it",
    )
    crash_probability: float = stackable(
        0.0,
        ge=0,
        le=1,
        description="that a device which sends crashes in the middle of the slot, having sent a "
        "share of its symbols that is uniform in (0, 1)",
    )
    crash_downtime_s: float = stackable(
        0.0, ge=0, description="seconds that a crashed device is away after the slot"
    )
    straggler_probability: float = stackable(
        0.0,
        ge=0,
        le=1,
        description="that a burst of slow computing begins for a device that is not in one, in a "
        "round",
    )
    straggler_rounds: float = stackable(
        5.0, ge=1, description="mean length of a burst in rounds, geometric"
    )
    straggler_factor: float = stackable(
        4.0, ge=1, description="what local work takes longer by in a burst"
    )
    fade_probability: float = stackable(
        0.0, ge=0, le=1, description="that a device's uplink is in a deep fade in a round"
    )
    fade_db: float = stackable(
        20.0, ge=0, description="by how much its channel is weaker then, in dB"
    )
    duplicate_probability: float = stackable(
        0.0, ge=0, le=1, description="that a device sends its update twice in a slot"
    )
