"""Drops of cells and Rayleigh fading, which many laws draw from the same seeds, are drawn once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest
from torch import Tensor

from otafl.channels.cell_drop import CellDrop, SionnaCell
from otafl.channels.scattering import BlockFading

MAX_BYTES = 1 << 28
"""Largest size of all kept draws; a drop has about 1 MB, fading 32 kB or more."""


class Draws:
    """Draws by all that they depend on.

    If they take too much memory, the one that was unused for longest goes.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[Tensor], int]] = {}
        self._num_bytes = 0

    def draw_once(self, key: Hashable, draw: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Return the tensors of a key, which nobody may change."""
        if key in self._kept:
            self._kept[key] = self._kept.pop(key)
        else:
            tensors = draw()
            size = sum(tensor.nbytes for tensor in tensors)
            self._kept[key] = tensors, size
            self._num_bytes += size
            while self._num_bytes > MAX_BYTES:
                self._num_bytes -= self._kept.pop(next(iter(self._kept)))[1]
        return self._kept[key][0]


DRAWS = Draws()


@pytest.fixture(autouse=True)
def keep_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is drawn from a seed and settings alone."""
    draw_batch, draw_taps = SionnaCell.draw_batch, BlockFading._draw_taps

    def draw_kept_batch(self: SionnaCell, seed: int, position: Tensor, indoor: Tensor) -> CellDrop:
        settings = self._settings
        key = (
            SionnaCell._place,
            (settings.name, settings.carrier_hz, settings.o2i_loss, settings.in_car),
            (seed, settings.server_height_m),
            (position.numpy().tobytes(), indoor.numpy().tobytes()),
        )
        return CellDrop(
            *DRAWS.draw_once(
                key, lambda: list(vars(draw_batch(self, seed, position, indoor)).values())
            )
        )

    def draw_kept_taps(self: BlockFading, seed: int, rounds: int, blocks: int) -> Tensor:
        key = (seed, rounds, blocks, self._antennas, self._streams.dtype)
        return DRAWS.draw_once(key, lambda: [draw_taps(self, seed, rounds, blocks)])[0]

    monkeypatch.setattr(SionnaCell, "draw_batch", draw_kept_batch)
    monkeypatch.setattr(BlockFading, "_draw_taps", draw_kept_taps)
