"""Who selections choose under Rayleigh fading."""

from __future__ import annotations

import numpy as np
import torch
from support.selections import EstimateFn
from torch import Tensor

from otafl.channels.rayleigh import Rayleigh
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.rng import Streams
from otafl.selection.base import SelectionSetup

LEVEL = 1e-4
DOUBLE = torch.float64
TRIALS, ROUNDS = 20, 400


def select_devices(
    name: str, wanted: int, gain: Tensor, **hyper: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who is chosen [rounds, S, K] under Rayleigh fading of mean gains [K] and budget 1, and the
    power gains."""
    gain = gain.to(DOUBLE).expand(TRIALS, -1)
    ones = torch.ones(TRIALS, dtype=DOUBLE)
    link = LinkBudget(torch.ones_like(gain), gain, ones, ones, ones.bool())
    streams = Streams([9] * TRIALS, range(TRIALS), dtype=DOUBLE)
    channel = Rayleigh(Rayleigh.Settings(), link, gain.shape[1], streams)
    settings = {key: torch.full((TRIALS,), value, dtype=DOUBLE) for key, value in hyper.items()}
    setup = SelectionSetup(EstimateFn(), link, streams, settings)
    made = registry.make_component(
        "selection", registry.load_settings_class("selection", name)(), setup
    )
    free = np.ones(gain.shape, bool)
    states = [channel.get_state(t) for t in range(ROUNDS)]
    who = np.stack([made.select_devices(free, wanted, t, state) for t, state in enumerate(states)])
    power = torch.stack([s.gain * s.h[..., 0, 0, 0].abs().square() for s in states]).numpy()
    return who, power, gain.numpy()
