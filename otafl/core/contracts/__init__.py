"""Frozen dataclasses of tensors that the components of a round exchange.

Sizes in shapes: S trials of one stack, K devices in the population, N (trial, device) pairs that
take part in a round, n rows of a chunk or of one payload group, A server antennas, P coordinates of
a payload.
"""

from __future__ import annotations

from otafl.core.contracts.cohort import MIN_SNR, Coefficients, Cohort, Link
from otafl.core.contracts.learning import (
    Batch,
    Context,
    FineTuneSpec,
    LocalContext,
    LocalData,
    MomentsFn,
    PredictFn,
    Submodel,
    View,
    Workload,
)
from otafl.core.contracts.link import (
    MIN_RATE,
    NO_LIMITS,
    NOISE_VARIANCE,
    ChannelState,
    ChannelStatistics,
    LinkBudget,
    LinkReport,
    Paths,
    TransmitLimits,
    apply_combiner,
)
from otafl.core.contracts.payload import Broadcast, DeliveredMasks, Group, Payload, Received
from otafl.core.tensors import MODEL, VERSION, Hyper, Tensors, take_rows, unsqueeze_like

__all__ = [
    "MIN_RATE",
    "MIN_SNR",
    "MODEL",
    "NOISE_VARIANCE",
    "NO_LIMITS",
    "VERSION",
    "Batch",
    "Broadcast",
    "ChannelState",
    "ChannelStatistics",
    "Coefficients",
    "Cohort",
    "Context",
    "DeliveredMasks",
    "FineTuneSpec",
    "Group",
    "Hyper",
    "Link",
    "LinkBudget",
    "LinkReport",
    "LocalContext",
    "LocalData",
    "MomentsFn",
    "Paths",
    "Payload",
    "PredictFn",
    "Received",
    "Submodel",
    "Tensors",
    "TransmitLimits",
    "View",
    "Workload",
    "apply_combiner",
    "take_rows",
    "unsqueeze_like",
]
