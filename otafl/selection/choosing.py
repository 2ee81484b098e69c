"""Draw who of a cohort sends."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams, declare_purpose

SENDERS = declare_purpose("senders", __name__)


def draw_subset(cohort: Cohort, wanted: int, round: int, streams: Streams) -> Tensor:
    """Draw so many of each trial's rows, [N] bool, every set equally likely; all where there are no
    more."""
    key = streams.draw_device_uniform(SENDERS, round, cohort.trial, cohort.device, (1,)).squeeze(1)
    order = key.argsort()
    order = order[cohort.trial[order].argsort(stable=True)]  # by trial, then by key
    first = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
    place = torch.arange(cohort.num_rows, device=key.device) - first[cohort.trial]
    return torch.zeros_like(cohort.transmit_mask).scatter_(0, order, place < wanted)
