"""A round reads nothing from the processor that computes, and sends nothing to it, but what is
listed here with its reason; no tensor is made on the host.

A GPU works while its host prepares what comes next, until the host asks for a number. What is
listed is either needed by the clock, which is the host's, or decides how much work there is.

Mutations that make a test here fail: an `.item()` or a tensor without a device in the loop of
`LocalTraining`; a constant that is made anew in each round instead of by `constant`.
"""

from __future__ import annotations

import pytest
import torch
from gpu.cases import CASES, QUICK
from gpu.running import moves, on_gpu, pretended
from support.pretended import MAKES, READS, SENDS

CLOCK = "the clock, on the host, needs it"
ROWS = "how many rows go on decides the shapes of what follows"
FACTORS = "the library of the factorisation looks whether it went well"
SHORT = "one number decides whether the short way will do"
DRAWN = "the clock's devices and rates, known to the host, are sent once"

READ = {
    "engine.engine.Engine.measure": CLOCK,
    "engine.engine.Engine.limits": "how many updates crash is counted on the host",
    "engine.sizes.Sizes.count": CLOCK,
    "engine.sizes.Sizes.flops": CLOCK,
    "core.contracts.cohort.Cohort.host_cell": CLOCK,
    "downlink.ideal.IdealDownlink.send": CLOCK,
    "downlink.digital.DigitalDownlink._attempts": CLOCK,
    "devices.faults.Bursts.factor": CLOCK,
    "devices.jitter.Jitter.factor": CLOCK,
    "frequency.joint.JointFrequency._rho": CLOCK,
    "levels.deadline.DeadlineLevels.of": CLOCK,
    "selection.base.random_key": CLOCK,
    "selection.threshold.Threshold.choose": CLOCK,
    "channels.scattering.BlockFading.draw": "batches of devices are drawn that take part",
    "algorithms.level_training.buckets.<listcomp>": ROWS,
    "algorithms.local_samples.pieces": ROWS,
    "algorithms.split_mix.SplitMix.local": ROWS,
    "codecs.amp._recovered": ROWS,
    "core.contracts.cohort.Cohort.senders": ROWS,
    "core.contracts.cohort.rows_per_trial": ROWS,
    "core.contracts.payload.Group.select": ROWS,
    "devices.faults.Faults._attacked": ROWS,
    "engine.local_training.LocalTraining.of": ROWS,
    "engine.pending.Update.take": ROWS,
    "transport.superpose._merge_repeated": ROWS,
    "transport.superpose.each_row": ROWS,
    "transport.superpose.signal": ROWS,
    "factorised.decomposition.svd": FACTORS,
    "factorised.shrinkage.svt": FACTORS,
    "receivers.eigen.first_eigenvector": FACTORS,
    "transport.digital.Digital.carry": SHORT,
    "transport.over_the_air.OverTheAir._account": SHORT,
}
"""Function of otafl that reads numbers from the processor -> why."""

SENT = {
    "algorithms.fedfomo.HeldOut.__init__": "which samples are held out",
    "engine.engine.Engine._cohort": DRAWN,
    "engine.engine.Engine._of_cells": DRAWN,
    "engine.workload.Workload.limits": DRAWN,
    "frequency.joint.JointFrequency._rho": DRAWN,
    "levels.channel.ChannelLevels.of": DRAWN,
    "levels.deadline.DeadlineLevels.of": DRAWN,
    "levels.dynamic.DynamicLevels.of": DRAWN,
    "transport.over_the_air.OverTheAir._combine": "which cells of the channel segments are in",
}
"""Function of otafl that sends numbers to the processor -> which."""

ALLOWED = {(READS, where) for where in READ} | {(SENDS, where) for where in SENT}


@pytest.mark.parametrize("case", QUICK)
def test_nothing_else_is_moved_or_made_on_the_host(case: str) -> None:
    _, noted = pretended(case)
    new = {key: line for key, line in noted.items() if key not in ALLOWED}
    assert not new, "what a GPU would be waited for; list it with its reason, or mend it"


@pytest.mark.slow
def test_the_list_is_what_happens() -> None:
    """Every case, and every entry of the list in one of them."""
    seen: set[tuple[str, str]] = set()
    for case in CASES:
        _, noted = pretended(case)
        assert not [key for key in noted if key[0] == MAKES], case
        seen |= moves(noted)
    assert seen == ALLOWED


def test_no_more_with_more_trials_and_devices() -> None:
    few, many = (
        pretended("fedavg over over_the_air", trials, devices)[1]
        for trials, devices in ((1, 2), (5, 9))
    )
    assert few == many


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_is_waited_for_there_alone(case: str) -> None:
    _, waited = on_gpu(case)
    assert set(waited) <= {where for _, where in ALLOWED}
