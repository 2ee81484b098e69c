"""Uplinks over the air that account for privacy: three trials of four devices, payloads of ten
reals clipped to a norm of 0.3."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from otafl.validation.bench import Bench, Rig

K, S, P, C = 4, 3, 10, 0.3


def rig(power: Any = "full", rounds: int = 5, snr_db: float = 10.0, **sections: Any) -> Rig:
    section = {"clip": C} | sections.pop("privacy", {})
    channel = {"name": "rayleigh", "snr_db": snr_db} | sections.pop("channel", {})
    point = {"channel": channel, "power": power, "privacy": section}
    return Bench().build_rig(K, S, point | {"training": {"rounds": rounds}} | sections)


def mu(one: Rig) -> np.ndarray:
    return one.link.transport.compute_metrics()["dp_mu"].numpy()


def rows(one: Rig, scale: float = 1.0) -> torch.Tensor:
    return scale * one.draw_symbols(P, 0)
