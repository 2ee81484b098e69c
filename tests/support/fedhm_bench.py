"""What FedHM's tests stand on: a small network, cohorts of mixed levels, and an uplink without
error from which devices may be missing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from twins.setting import everyone

from otafl.algorithms.submodels.fedhm import FedHm
from otafl.core.contracts import (
    Cohort,
    Context,
    LocalContext,
    LocalData,
    Payload,
    Received,
    Tensors,
)
from otafl.core.rng import Streams
from otafl.models.base import Model
from otafl.models.layer_contract import Layer
from otafl.models.layers import Linear, Relu
from otafl.models.network import Network
from otafl.uplink.groups import compute_error_free, make_signal, select_rows

HYPER = {
    "learning_rate": [0.2, 0.1],
    "momentum": [0.9, 0.5],
    "weight_decay": [0.01, 0.1],
    "frobenius_decay": [0.3, 0.05],
}


def make_perceptron(widths: Sequence[int]) -> Network:
    """Linear layers "linear1".. and "classifier"."""
    steps: list[Layer] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths[:-1]), 1):
        steps += [Linear(f"linear{i}", a, b, cut=i > 1), Relu()]
    steps.append(Linear("classifier", widths[-2], widths[-1], last=True))
    return Network((widths[0], 1, 1), tuple(steps))


def make_hyper(trials: int, dtype: torch.dtype = torch.float64, **values: float) -> Tensors:
    out = {name: torch.tensor(both[:trials], dtype=dtype) for name, both in HYPER.items()}
    return out | {name: torch.full((trials,), v, dtype=dtype) for name, v in values.items()}


def make_cohort(levels: Sequence[Sequence[int]], dtype: torch.dtype = torch.float64) -> Cohort:
    """All devices of all trials at the given levels [S][K]."""
    table = torch.tensor(levels)
    return replace(everyone(torch.ones(table.shape, dtype=dtype)), capacity_level=table.flatten())


def make_method(model: Model, devices: int = 5, **settings: Any) -> FedHm:
    return FedHm(FedHm.Settings.model_validate(settings), model, devices)


def apply_weights(ours: FedHm, cohort: Cohort) -> Cohort:
    """The cohort with the weights that the method gives it."""
    context = Context(cohort, {}, Streams([0], [0]), 0)
    return replace(cohort, weight=ours.compute_weights(context))


def run_local_updates(
    ours: FedHm, server: Tensors, cohort: Cohort, work: LocalData, values: Tensors, streams: Streams
) -> tuple[Payload, Tensor]:
    """The payload and the losses of a cohort in one chunk."""
    down = ours.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
    with torch.inference_mode():
        context = LocalContext(cohort, values, streams, work.round, work)
        state, payload, loss = ours.run_local_update(down, {}, context)
    assert state == {}
    return payload, loss


def make_received(
    payload: Payload, cohort: Cohort, delivered_mask: Tensor | None = None
) -> Received:
    """As an error-free uplink that tells devices apart delivers it; came: [N] bool."""
    heard = (
        cohort
        if delivered_mask is None
        else replace(cohort, transmit_mask=delivered_mask, all_transmit=False)
    )
    both = [compute_error_free(make_signal(group, heard)) for group in payload]
    each, rows_came = [], []
    for group in payload:
        blocks = select_rows(group, cohort)
        rows = slice(None) if group.row_index is None else group.row_index
        if delivered_mask is not None:
            blocks = {n: b * delivered_mask[rows, None] for n, b in blocks.items()}
            rows_came.append(delivered_mask[rows])
        each.append(blocks)
    return Received(
        tuple(mean for mean, _ in both),
        tuple(count for _, count in both),
        tuple(each),
        None,
        None if delivered_mask is None else tuple(rows_came),
    )


def run_round(
    ours: FedHm,
    server: Tensors,
    cohort: Cohort,
    work: LocalData,
    values: Tensors,
    streams: Streams,
    delivered_mask: Tensor | None = None,
) -> tuple[Tensors, Tensor]:
    """The server's blocks after a round, and the losses."""
    payload, loss = run_local_updates(ours, server, cohort, work, values, streams)
    received = make_received(payload, cohort, delivered_mask)
    context = Context(cohort, values, streams, work.round)
    return ours.update_server(server, received, context), loss
