"""What the channels share: link budgets, and drawing fading in blocks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from otafl.channels.config import ChannelConfig
from otafl.contracts import LinkBudget
from otafl.units import db_to_linear, dbm_to_watt, noise_power_w

DEFAULT_SNR_DB = 20.0
ROUNDS_PER_BLOCK = 64


def link_budget(
    configs: Sequence[ChannelConfig], device: torch.device, dtype: torch.dtype
) -> LinkBudget:
    """The budgets of S trials. With `path_loss_db` the SNR is physical: transmit power over
    thermal noise in the band, and the path loss is the gain; else `snr_db` is the budget at gain
    1."""
    rows = []
    for config in configs:
        tx_power_w = dbm_to_watt(config.tx_power_dbm)
        if config.path_loss_db is not None:
            noise_w = noise_power_w(config.bandwidth_hz, config.noise_figure_db)
            budget, gain = tx_power_w / noise_w, db_to_linear(-config.path_loss_db)
        else:
            snr_db = DEFAULT_SNR_DB if config.snr_db is None else config.snr_db
            budget, gain = db_to_linear(snr_db), 1.0
        rows.append((budget, gain, tx_power_w, config.bandwidth_hz))
    columns = torch.tensor(rows, dtype=torch.float64).T.to(device, dtype)
    return LinkBudget(*columns)


class RoundBlocks:
    """Draws of many rounds at once, handed out round by round: draw(first round, rounds) ->
    [rounds, ...]. A round's numbers must not depend on where a block starts, so blocks start at
    multiples of their length."""

    def __init__(self, draw: Callable[[int, int], Tensor], length: int = ROUNDS_PER_BLOCK) -> None:
        self._draw = draw
        self._length = length
        self._first = -1
        self._block: Tensor | None = None

    def __getitem__(self, round: int) -> Tensor:
        first = round - round % self._length
        if self._block is None or first != self._first:
            self._first, self._block = first, self._draw(first, self._length)
        return self._block[round - first]
