"""What the channels share: link budgets, and drawing fading in blocks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from otafl.channels.config import ChannelConfig
from otafl.core.contracts import LinkBudget
from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

DEFAULT_SNR_DB = 20.0
ROUNDS_PER_BLOCK = 64


def link_budget(
    configs: Sequence[ChannelConfig], devices: int, device: torch.device, dtype: torch.dtype
) -> LinkBudget:
    """The budgets of S trials over K devices. Physical, with `path_loss_db` or on a channel that
    has a path loss of its own and no `snr_db`: transmit power over thermal noise in the band, and
    the path loss is the gain; else `snr_db` is the budget at gain 1."""
    rows, budgets = [], []
    for config in configs:
        tx_power_w = dbm_to_watt(config.tx_power_dbm)
        gain = 1.0 if config.path_loss_db is None else db_to_linear(-config.path_loss_db)
        if config.physical:
            unit_w = noise_power_w(config.bandwidth_hz, config.noise_figure_db)
        else:
            snr_db = DEFAULT_SNR_DB if config.snr_db is None else config.snr_db
            unit_w = tx_power_w / db_to_linear(snr_db)
        rows.append((gain, unit_w, config.bandwidth_hz))
        own = [db_to_linear(offset) for offset in config.device_budget_db] or [1.0]
        budgets.append([tx_power_w / unit_w * own[k % len(own)] for k in range(devices)])
    gain, unit_power_w, bandwidth_hz = torch.tensor(rows, dtype=torch.float64).T.to(device, dtype)
    return LinkBudget(
        budget=torch.tensor(budgets, dtype=torch.float64).to(device, dtype),
        gain=gain[:, None].expand(-1, devices),
        unit_power_w=unit_power_w,
        bandwidth_hz=bandwidth_hz,
        physical=torch.tensor([config.physical for config in configs], device=device),
    )


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
