"""Drive Sionna's global generator by our named streams.

Sionna 2 draws from one generator a device, `sionna.phy.config.torch_rng(device)`, and its import
reseeds torch's global generator and takes seconds; so it is imported on first use, with torch's
global state put back. Threads take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TURN = threading.RLock()


@contextmanager
def keep_global_state() -> Iterator[None]:
    """Put torch's global generators, of the CPU and of GPUs, back to what they were."""
    with _TURN, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def use_sionna_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Let Sionna's draws inside come from this seed alone; its own generator is then put back."""
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
