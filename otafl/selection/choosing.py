"""Random choice of transmitters among the participants."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams, declare_purpose

SENDERS = declare_purpose("senders", __name__)


def draw_subset(cohort: Cohort, wanted: int, round: int, streams: Streams) -> Tensor:
    """Draw transmitters of each trial, every set with equal probability.

    Parameters
    ----------
    cohort : Cohort
        Participants, N rows.
    wanted : int
        Number of transmitters of each trial; all if there are fewer rows.
    round : int
        Index of the round.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    Tensor, bool [N]
        Transmitters.
    """
    key = streams.draw_device_uniform(SENDERS, round, cohort.trial, cohort.device, (1,)).squeeze(1)
    order = key.argsort()
    order = order[cohort.trial[order].argsort(stable=True)]  # by trial, then by key
    first = cohort.rows_per_trial.long().cumsum(0) - cohort.rows_per_trial.long()
    place = torch.arange(cohort.num_rows, device=key.device) - first[cohort.trial]
    return torch.zeros_like(cohort.transmit_mask).scatter_(0, order, place < wanted)
