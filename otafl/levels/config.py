"""Settings of levels: which of a method's model sizes each device trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings

Shares = tuple[Annotated[float, Field(ge=0)], ...]
_SHARES = (
    "share of the devices on each level, the largest model first, as weights; all levels alike "
    "if not given"
)


class FixedLevelsConfig(Settings):
    """Every device keeps one level for the whole run (FedHM's fixed heterogeneity)."""

    name: Literal["fixed"] = "fixed"
    shares: Shares | None = Field(None, description=_SHARES)
    assignment: Literal["blocks", "random"] = Field(
        "blocks",
        description="who: the first devices have the largest models, or drawn once a trial",
    )


class DynamicLevelsConfig(Settings):
    """Every device draws a level anew in every round (FedHM's dynamic heterogeneity)."""

    name: Literal["dynamic"] = "dynamic"
    shares: Shares | None = Field(None, description="probability of each level, as weights")


class ComputeLevelsConfig(Settings):
    """By how fast the devices compute: the fastest have the largest models."""

    name: Literal["compute"] = "compute"
    shares: Shares | None = Field(None, description=_SHARES)


class MemoryLevelsConfig(Settings):
    """By memory: the largest model whose training fits, parameters, gradients and momentum and
    what a minibatch leaves behind for the backward pass."""

    name: Literal["memory"] = "memory"
    memory_mb: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None,
        min_length=1,
        description="memory of each class of devices in MiB; that of devices.compute if not given",
    )
    shares: Shares | None = Field(
        None, description="share of the devices in each class, as weights; all alike if not given"
    )

    @model_validator(mode="after")
    def _of_classes(self) -> MemoryLevelsConfig:
        if self.shares is not None and self.memory_mb is None:
            raise ValueError(
                "shares: are those of the classes of memory_mb, which is not given; leave them "
                "out, or give memory_mb"
            )
        return self


class ChannelLevelsConfig(Settings):
    """By the round's channel: of the devices that take part, the best heard have the largest
    models; or those that are heard well enough."""

    name: Literal["channel"] = "channel"
    shares: Shares | None = Field(
        None, description="share of a round's participants on each level, as weights"
    )
    min_snr_db: tuple[float, ...] | None = Field(
        None,
        description="instead of shares: least estimated SNR at full power of each level but the "
        "smallest, in dB, the largest model first",
    )


class DeadlineLevelsConfig(Settings):
    """By the round's clock and channel: the largest model that a device can train and send in
    time, 32 bits a parameter at its estimated rate, the band shared in turns with the others that
    take part; the smallest where none is quick enough."""

    name: Literal["deadline"] = "deadline"
    seconds: float = Field(gt=0, description="for local work and upload together")
