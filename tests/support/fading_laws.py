"""What laws of fading are tested with, at a false-alarm level of 1e-4 over all that is compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from otafl.channels.base import Channel

LEVEL = 1e-4
DOPPLER_HZ = 10.0
MOVING: dict[str, Any] = {"speed_kmh": DOPPLER_HZ * 3.6 * 299_792_458.0 / 3e9, "carrier_hz": 3e9}

Complex = np.ndarray[Any, np.dtype[np.complex128]]


def draw_fading(channel: Channel, rounds: int) -> Complex:
    """[rounds, S, K, A, F] of the first block."""
    h = torch.stack([channel.get_state(round).h[:, :, :, 0] for round in range(rounds)])
    return h.numpy().astype(np.complex128)


def is_within_tolerance(error: np.ndarray | complex, draws: int, comparisons: int = 1) -> bool:
    """Whether a mean over so many unit-variance complex numbers of mean zero is that small."""
    bound = -math.log(LEVEL / max(comparisons, np.size(error)))
    return bool((np.abs(error) ** 2 * draws < bound).all())
