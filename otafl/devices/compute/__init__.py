"""Say what devices are made of; each file is a kind of devices. `build` draws their hardware."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.core.rng import Streams, declare_purpose
from otafl.devices.compute.base import Compute
from otafl.devices.hardware import Hardware

HARDWARE = declare_purpose("compute", __name__)


def build(
    sections: Sequence[Compute], devices: int, streams: Streams, first: Sequence[int] | None = None
) -> Hardware:
    """Draw the hardware [S, K] of S trials.

    Parameters
    ----------
    sections : S settings of one class, the `devices.compute` of each trial.
    devices : K.
    first : S numbers of the trials' first devices, 0 if not given.

    Raises
    ------
    UserError
        For a file that cannot be read.
    """
    generators = streams.make_generators(HARDWARE)
    numbers = [0] * len(sections) if first is None else first
    trials = zip(sections, generators, numbers, strict=True)
    return Hardware.stack(
        [one.build_hardware(devices, each, number) for one, each, number in trials]
    )
