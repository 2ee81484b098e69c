"""What a round measures: link and training means between records, running totals, and models
evaluated on test samples."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.contracts import Cohort, LinkReport, View

EVALUATION_CHUNK = 1 << 21
"""Real numbers of test inputs worked on at a time, all rows together."""


class RoundMeans:
    """Means over the rounds since the last record, and totals since the first; all [S] or [S, K].
    Nothing leaves the torch device before `take`."""

    MEANS = ("train_loss", "aggregation_nmse", "participants", "tx_power")
    TOTALS = (
        "uplink_symbols",
        "uplink_bits",
        "side_symbols",
        "downlink_bits",
        "airtime_s",
        "radio_j",
    )

    def __init__(self, trials: int, devices: int, device: torch.device) -> None:
        shape = {"tx_power": (trials, devices), "radio_j": (trials, devices)}
        self._sums = {
            name: torch.zeros(shape.get(name, (trials,)), dtype=torch.float64, device=device)
            for name in self.MEANS + self.TOTALS
        }
        self._trained = torch.zeros(trials, dtype=torch.float64, device=device)
        self._rounds = 0

    def add(
        self, report: LinkReport, cohort: Cohort, loss: Tensor, downlink_bits: Tensor | float
    ) -> None:
        """A round: its delivery, and the loss [N] of the cohort that trained."""
        self._rounds += 1
        self._sums["train_loss"].index_add_(0, cohort.trial, loss.double())
        self._trained += self._trained.new_tensor(cohort.counts)
        for name, value in (
            ("aggregation_nmse", report.nmse),
            ("participants", report.participants),
            ("tx_power", report.power),
            ("uplink_symbols", report.symbols),
            ("uplink_bits", report.bits),
            ("side_symbols", report.side_symbols),
            ("downlink_bits", downlink_bits),
            ("airtime_s", report.airtime_s),
            ("radio_j", report.energy_j),
        ):
            self._sums[name] += value

    def take(self) -> dict[str, Tensor]:
        """Means since the last call (NaN if there was no round) and totals, float64."""
        out = {}
        for name in self.MEANS:
            over = self._trained if name == "train_loss" else float(self._rounds)
            out[name] = self._sums[name] / over if self._rounds else self._sums[name] * torch.nan
            self._sums[name] = torch.zeros_like(self._sums[name])
        for name in self.TOTALS:
            out[name] = self._sums[name].clone()
        self._trained = torch.zeros_like(self._trained)
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
        picked = torch.log_softmax(scores, -1).gather(-1, target[..., None])
        loss -= picked.sum((1, 2))
    return right / len(y), loss / len(y)
