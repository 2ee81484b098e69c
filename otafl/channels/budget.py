"""Work out what power devices have, and how much of it arrives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from otafl.channels.base import ChannelSettings
from otafl.core.contracts import LinkBudget
from otafl.core.units import db_to_linear, dbm_to_watt, noise_power_w

DEFAULT_SNR_DB = 20.0


def link_budget(
    sections: Sequence[ChannelSettings],
    devices: int,
    device: torch.device,
    dtype: torch.dtype,
    power_db: np.ndarray | None = None,
) -> LinkBudget:
    """Return the budgets of S trials over K devices.

    Physical, with `path_loss_db` or on a channel that has a path loss of its own and no `snr_db`:
    transmit power over thermal noise in the band, and the path loss is the gain; else `snr_db` is
    the budget at gain 1.

    Parameters
    ----------
    sections : S, the channel's settings of each trial.
    devices : K.
    device : where the tensors are to be.
    dtype : real.
    power_db : [S, K] dB that devices' budgets are above the channel's.
    """
    rows, budgets = [], []
    for section in sections:
        tx_power_w = dbm_to_watt(section.tx_power_dbm)
        gain = 1.0 if section.path_loss_db is None else db_to_linear(-section.path_loss_db)
        if section.physical:
            unit_w = noise_power_w(section.bandwidth_hz, section.noise_figure_db)
        else:
            snr_db = DEFAULT_SNR_DB if section.snr_db is None else section.snr_db
            unit_w = tx_power_w / db_to_linear(snr_db)
        rows.append((gain, unit_w, section.bandwidth_hz))
        offsets = [db_to_linear(offset) for offset in section.device_budget_db] or [1.0]
        budgets.append([tx_power_w / unit_w * offsets[k % len(offsets)] for k in range(devices)])
    gain, unit_power_w, bandwidth_hz = torch.tensor(rows, dtype=torch.float64).T.to(device, dtype)
    budget = torch.tensor(budgets, dtype=torch.float64).to(device, dtype)
    if power_db is not None and power_db.any():
        budget = budget * torch.from_numpy(db_to_linear(power_db)).to(budget)
    return LinkBudget(
        budget=budget,
        gain=gain[:, None].expand(-1, devices),
        unit_power_w=unit_power_w,
        bandwidth_hz=bandwidth_hz,
        physical=torch.tensor([section.physical for section in sections], device=device),
    )
