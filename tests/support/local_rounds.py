"""Counts the operations of one device's local work in a round."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

from contract.small import engine
from support.operations import Counted

from otafl.algorithms.base import Algorithm
from otafl.core.contracts import Workload
from otafl.core.rng import Streams
from otafl.data.training_data import CohortData
from otafl.engine.assembly import make_workload
from otafl.models.span import PlainForm

NORMAL = 4.0
"""Operations of a normal number: logarithm, root, cosine, product."""


class LocalRound(NamedTuple):
    """Holds what was counted of a device of this load and level."""

    counted: Counted
    method: Algorithm
    load: Workload
    level: int


def run_local_round(name: str, keys: Mapping[str, Any], rounds: int = 1) -> LocalRound:
    """Count the local work of one device of three, 100 samples of digits each, in all rounds.

    Left out are what is no arithmetic of the device's: drawing minibatches and reading samples, and
    the generator of random numbers, of which normal ones count NORMAL. Methods that step several
    times on a minibatch are given the plain form of their model: the other one finds the same
    models by fewer operations.
    """
    three = {"devices.count": 3, "devices.participants": 1, "trials": 1, "data.partition": "iid"}
    one = engine({"algorithm": name, "transport": "ideal"} | three | dict(keys))
    method, counted, seen = one.parts.algorithm, Counted(), []
    method.__dict__["form"] = PlainForm(method.model)
    local = method.run_local_update

    def watched(broadcast: Any, devices: Any, context: Any) -> Any:
        seen.append(context.cohort)
        with counted:
            return local(broadcast, devices, context)

    with ExitStack() as patches:
        for kind, names in {
            CohortData: ("draw_batch", "load_full_batch"),
            Streams: ("draw_device_uniform", "draw_device_normal"),
        }.items():
            for of in names:
                patches.enter_context(_ignore_calls(counted, kind, of))
        patches.enter_context(patch.object(method, "run_local_update", watched))
        for t in range(rounds):
            one.run_round(t)
    assert [cohort.num_rows for cohort in seen] == [1] * rounds
    cohort = seen[-1]
    load = make_workload(one.parts.scenario, one.parts.samples).select_devices(
        cohort.flat_index.numpy()
    )
    return LocalRound(counted, method, load, int(cohort.capacity_level))


def _ignore_calls(counted: Counted, kind: type, name: str) -> Any:
    """Patch a method so that what it does is not counted."""
    plain = getattr(kind, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with counted.pause():
            out = plain(*args, **kwargs)
        if name == "draw_device_normal" and counted.is_counting:  # the server draws, too
            counted.add(NORMAL * out.numel())
        return out

    return patch.object(kind, name, wrapped)
