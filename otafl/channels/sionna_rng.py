"""Control of Sionna's global random generator by named streams.

Sionna 2 draws from one generator for each device, `sionna.phy.config.torch_rng(device)`. Its import
takes seconds and reseeds torch's global generator, so it is imported on first use, and torch's
global state is restored. Threads take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TURN = threading.RLock()


@contextmanager
def keep_global_state() -> Iterator[None]:
    """Restore torch's global generators, of the CPU and of GPUs, at the end."""
    with _TURN, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def use_sionna_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Seed Sionna's draws in this context, and restore its generator at the end."""
    with keep_global_state():
        import sionna.phy

        generator = sionna.phy.config.torch_rng(str(device))
    with _TURN:
        state = generator.get_state()
        generator.manual_seed(seed)
        try:
            yield
        finally:
            generator.set_state(state)
