"""What a round measures: link and training means between records, running totals, and models
evaluated on test samples."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from otafl.contracts import Cohort, View
from otafl.link_contracts import LinkReport

EVALUATION_CHUNK = 1 << 21
"""Real numbers of test inputs worked on at a time, all rows together."""


class RoundMeans:
    """Means over the rounds since the last record, and totals since the first. Nothing leaves the
    torch device before `take`."""

    _PER_TRIAL = (
        "aggregation_nmse",
        "participants",
        "uplink_symbols",
        "uplink_bits",
        "side_symbols",
        "airtime_s",
    )
    _PER_DEVICE = ("tx_power", "radio_j")
    _TOTALS = ("uplink_symbols", "uplink_bits", "side_symbols", "airtime_s", "radio_j")

    def __init__(self, trials: int, devices: int, device: torch.device) -> None:
        new = functools.partial(torch.zeros, dtype=torch.float64, device=device)
        self._trial = new(len(self._PER_TRIAL), trials)
        self._device = new(len(self._PER_DEVICE), trials, devices)
        self._loss, self._trained = new(trials), new(trials)
        self._rounds = 0

    def add(self, report: LinkReport, cohort: Cohort, loss: Tensor) -> None:
        """A round: its delivery, and the loss [N] of the cohort that trained."""
        self._rounds += 1
        self._loss.index_add_(0, cohort.trial, loss.double())
        self._trained += cohort.rows_of
        self._trial += torch.stack(
            [
                report.nmse,
                report.participants,
                report.symbols,
                report.bits,
                report.side_symbols,
                report.airtime_s,
            ]
        )
        self._device += torch.stack([report.power, report.energy_j])

    def take(self) -> dict[str, Tensor]:
        """Means since the last call (NaN if there was no round) and totals, float64, [S] or
        [S, K]."""
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


def evaluate(view: View, x: Tensor, y: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Accuracy [n] and mean cross-entropy [n] of each of a view's models (or of the given rows) on
    samples x [T, *input], y [T], in chunks of samples."""
    params = view.params
    if rows is not None:
        params = {name: block.index_select(0, rows) for name, block in params.items()}
    n = next(iter(params.values())).shape[0]
    right = torch.zeros(n, dtype=torch.float64, device=y.device)
    loss = torch.zeros_like(right)
    size = max(1, EVALUATION_CHUNK // (n * x[0].numel()))
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        scores = view.predict(params, part[None])
        target = labels.expand(n, -1)
        right += (scores.argmax(-1) == target).sum(1)
        picked = scores.gather(-1, target[..., None]).squeeze(-1)
        loss += (torch.logsumexp(scores, -1) - picked).sum(1)
    return right / len(y), loss / len(y)
