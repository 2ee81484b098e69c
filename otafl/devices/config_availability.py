"""Settings of when devices are there."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings


class AlwaysAvailableConfig(Settings):
    """There all the time."""

    name: Literal["always"] = "always"


class MarkovAvailabilityConfig(Settings):
    """Comes and goes: there for an exponential time, away for an exponential time, each device on
    its own; the two-state process that Gilbert (1960, "Capacity of a Burst-Noise Channel") had for
    channels. It starts in its stationary law, so a device is there with probability mean_on_s /
    (mean_on_s + mean_off_s) at all times. The defaults are a convention."""

    name: Literal["markov"] = "markov"
    mean_on_s: float = Field(600.0, gt=0, description="mean seconds that a device stays")
    mean_off_s: float = Field(600.0, gt=0, description="mean seconds that it is away")


class DiurnalAvailabilityConfig(Settings):
    """There with a probability that follows the time of day: mean + amplitude cos(2 pi (time -
    peak) / period), for exponential times of mean_session_s.

    By default it is four times as high at its peak, at night, as at its lowest: what Bonawitz et
    al. 2019, "Towards Federated Learning at Scale: System Design", saw of phones that take part
    when idle and charging. The mean, the hour and the length of a session are conventions.
    """

    name: Literal["diurnal"] = "diurnal"
    mean: float = Field(
        0.5, gt=0, lt=1, description="probability that a device is there, over a day"
    )
    amplitude: float = Field(
        0.3, ge=0, lt=1, description="how much higher that probability is at the peak"
    )
    mean_session_s: float = Field(3600.0, gt=0, description="mean seconds that a device stays")
    period_s: float = Field(86400.0, gt=0, description="seconds of a day, of 24 hours")
    peak_hour: float = Field(2.0, ge=0, le=24, description="hour of the peak, from 0 to 24")
    spread_hours: float = Field(
        0.0,
        ge=0,
        le=24,
        description="each device has a peak of its own, uniform over so many hours around "
        "peak_hour (time zones, habits)",
    )
    start_hour: float = Field(0.0, ge=0, le=24, description="hour at which the simulation starts")

    @model_validator(mode="after")
    def _possible(self) -> DiurnalAvailabilityConfig:
        if self.mean + self.amplitude >= 1:
            raise ValueError(
                f"amplitude: got {self.amplitude:g}, but the probability at the peak must be below "
                f"1; with mean: {self.mean:g}, less than {1 - self.mean:g} would do"
            )
        # nobody would come back, and those who are there would still not leave fast enough
        most = self.mean / math.hypot(1, 2 * math.pi * self.mean_session_s / self.period_s)
        if self.amplitude > most:
            raise ValueError(
                f"amplitude: got {self.amplitude:g}, but devices that stay for mean_session_s "
                f"({self.mean_session_s:g}) do not leave so fast; at most {most:.4g}, or shorter "
                "sessions, would do"
            )
        return self


class TraceAvailabilityConfig(Settings):
    """There in the intervals of a file: CSV with the columns device,start_s,end_s, a row an
    interval. `device` is a whole number; the scenario's devices take the file's in ascending
    order, and in turn again where there are more."""

    name: Literal["trace"] = "trace"
    file: str = Field(min_length=1, description="CSV file with device,start_s,end_s")
    repeat_s: float | None = Field(
        None,
        gt=0,
        description="period with which the file repeats, at least its last end_s, in seconds; "
        "without it devices stay away after their last interval",
    )
