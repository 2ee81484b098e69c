"""Hyperparameters in which the trials of a stack differ, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from otafl.core.contracts import Tensors
from otafl.core.rng import Streams
from otafl.core.settings import Settings, list_stackable_fields


def build_hyper(sections: Sequence[Settings], streams: Streams) -> Tensors:
    """Return each stackable field that all rows give, as a tensor over the trials.

    Parameters
    ----------
    sections : sequence of Settings
        S settings of one class, one per trial.
    streams : Streams
        Random streams, for precision and torch device.

    Returns
    -------
    dict of Tensor [S]
        Field -> values.
    """
    hyper = {}
    own = [row.values for row in sections]
    for name in list_stackable_fields(type(own[0])):
        values = [getattr(one, name) for one in own]
        if None not in values:
            hyper[name] = torch.tensor(values, dtype=streams.dtype, device=streams.device)
    return hyper
