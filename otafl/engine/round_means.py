"""Means and totals of the link and the training over rounds, between two records."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Cohort, LinkReport
from otafl.core.stateful import Stateful


def read_costs(report: LinkReport) -> tuple[np.ndarray, ...]:
    """Copy participants and airtime [S], and joules and seconds on air [S, K], to the host.

    They are one transfer, because a host waits for its GPU in each.
    """
    columns = report.participants[:, None], report.airtime_s[:, None]
    costs = torch.cat([*columns, report.energy_j, report.on_air_s], 1).double().cpu().numpy()
    middle = 2 + report.energy_j.shape[1]
    return costs[:, 0], costs[:, 1], costs[:, 2:middle], costs[:, middle:]


class RoundMeans(Stateful):
    """Means over the rounds since the last record, and totals since the first.

    No data leave the torch device before `take`.
    """

    state_attrs: ClassVar = ("_trial", "_device", "_loss", "_trained", "_rounds")

    _PER_TRIAL: ClassVar = {  # name -> of the report
        "aggregation_nmse": "nmse",
        "participants": "participants",
        "uplink_symbols": "symbols",
        "uplink_bits": "bits",
        "side_symbols": "side_symbols",
        "airtime_s": "airtime_s",
    }
    _PER_DEVICE: ClassVar = {"tx_power": "power", "radio_j": "energy_j"}
    _TOTALS = ("uplink_symbols", "uplink_bits", "side_symbols", "airtime_s", "radio_j")

    def __init__(self, trials: int, devices: int, device: torch.device) -> None:
        new = functools.partial(torch.zeros, dtype=torch.float64, device=device)
        self._trial = new(len(self._PER_TRIAL), trials)
        self._device = new(len(self._PER_DEVICE), trials, devices)
        self._loss, self._trained = new(trials), new(trials)
        self._rounds = 0

    def add(self, report: LinkReport, cohort: Cohort, loss: Tensor) -> None:
        """Add a round: its delivery, and the loss [N] of the cohort that trained."""
        self._rounds += 1
        self._loss.index_add_(0, cohort.trial, loss.double())
        self._trained += cohort.rows_per_trial
        said = vars(report)
        self._trial += torch.stack([said[name] for name in self._PER_TRIAL.values()])
        self._device += torch.stack([said[name] for name in self._PER_DEVICE.values()])

    def take(self) -> dict[str, Tensor]:
        """Return means since the last call (NaN without a round) and totals.

        They are float64, [S] or [S, K].
        """
        rounds = float(self._rounds) if self._rounds else torch.nan
        out = {"train_loss": self._loss / self._trained, "trained": self._trained.clone()}
        for names, sums in ((self._PER_TRIAL, self._trial), (self._PER_DEVICE, self._device)):
            for row, name in enumerate(names):
                out[name] = sums[row].clone()
                if name not in self._TOTALS:
                    out[name] /= rounds
                    sums[row] = 0.0
        self._loss.zero_()
        self._trained.zero_()
        self._rounds = 0
        return out
