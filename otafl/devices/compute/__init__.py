"""Kinds of devices, and `build`, which draws their hardware."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.core.rng import Streams, declare_purpose
from otafl.devices.compute.base import Compute
from otafl.devices.hardware import Hardware

HARDWARE = declare_purpose("compute", __name__)


def build(
    sections: Sequence[Compute], devices: int, streams: Streams, first: Sequence[int] | None = None
) -> Hardware:
    """Draw the hardware of S trials.

    Parameters
    ----------
    sections : Sequence of Compute
        Sections `devices.compute` of the trials, of one class.
    devices : int
        Number of devices K of each row.
    streams : Streams
        Random streams of the trials.
    first : Sequence of int, optional
        Number of the first device of each row; 0 if not given.

    Returns
    -------
    Hardware, arrays [S, K]
        Hardware of the devices.

    Raises
    ------
    UserError
        If a file cannot be read.
    """
    generators = streams.make_generators(HARDWARE)
    numbers = [0] * len(sections) if first is None else first
    trials = zip(sections, generators, numbers, strict=True)
    return Hardware.stack(
        [one.build_hardware(devices, each, number) for one, each, number in trials]
    )
