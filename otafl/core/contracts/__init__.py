"""Hold what the parts of a round hand to each other: frozen dataclasses of tensors.

Sizes: S trials of one stack, K devices in the population, N (trial, device) pairs that take part
in a round, n rows of one payload group.
"""

from __future__ import annotations

from otafl.core.contracts.blocks import MODEL, Blocks, Hyper, column, taken
from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.context import Context, LocalContext
from otafl.core.contracts.learning import (
    Batch,
    FineTune,
    Level,
    LocalLoad,
    Moments,
    Predict,
    View,
    Work,
)
from otafl.core.contracts.link import (
    LEAST_RATE,
    LEAST_SNR,
    NO_LIMITS,
    NOISE_VARIANCE,
    ChannelState,
    Coefficients,
    Limits,
    Link,
    LinkBudget,
    LinkReport,
    Paths,
    Statistics,
    combined,
)
from otafl.core.contracts.payload import Broadcast, Group, Heard, Payload, Received

__all__ = [
    "LEAST_RATE",
    "LEAST_SNR",
    "MODEL",
    "NOISE_VARIANCE",
    "NO_LIMITS",
    "Batch",
    "Blocks",
    "Broadcast",
    "ChannelState",
    "Coefficients",
    "Cohort",
    "Context",
    "FineTune",
    "Group",
    "Heard",
    "Hyper",
    "Level",
    "Limits",
    "Link",
    "LinkBudget",
    "LinkReport",
    "LocalContext",
    "LocalLoad",
    "Moments",
    "Paths",
    "Payload",
    "Predict",
    "Received",
    "Statistics",
    "View",
    "Work",
    "column",
    "combined",
    "taken",
]
