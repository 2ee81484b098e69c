"""Know which way a variable is better, as Pareto fronts need."""

from __future__ import annotations

import re
from typing import Literal

from otafl.results.variables import SERVER

HIGHER = re.compile(r"accuracy$|^charge_j$|^end_round$")
LOWER = re.compile(
    r"loss$|_j$|_s$|_w$|symbols$|bits$|nmse$|_macs$|parameters$|^product_error$|^refactoring_error$"
    r"|^truncation_gap$|^stop_round$|^(crashed|rejected|duplicated)_updates$|^updates_lost$"
    r"|^gradients_per_step$|^compression_(actual|nominal)$|^dp_(mu|epsilon|limited)$"
    r"|^papr_db$|^evm$"
)
UNDIRECTED = frozenset(
    {"majority_accuracy", "update_coherence", "update_coherence_log", "device_own_class_samples"}
    | {"level_participants", "weight_rank", "weight_density", "product_error_law", "prox_gap"}
    | {"consensus_gap", "consensus_error", "participants", "present", "diverged_round"}
    | {"majority_share", "test_samples", "own_test_samples"}
    | {"updates_started", "updates_used", "timeline_device", "timeline_round"}
    | {"timeline_activity", "timeline_start_s", "timeline_end_s"}
)
"""Variables that describe and do not judge."""


def get_better_direction(name: str) -> Literal["higher", "lower"] | None:
    """Return whether a variable is better higher or lower.

    Accuracies and charges are better higher; losses, errors, joules, seconds, symbols, bits and
    work lower. None where neither is better, or where it is not known.
    """
    name = name.removeprefix(SERVER)
    if name in UNDIRECTED:
        return None
    if HIGHER.search(name):
        return "higher"
    return "lower" if LOWER.search(name) else None
