"""A round reads nothing from the processor that computes, and sends nothing to it, but what is
listed here with its reason; no tensor is made on the host.

A GPU works while its host prepares what comes next, until the host asks for a number. What is
listed is either needed by the clock, which is the host's, or decides how much work there is.
"""

from __future__ import annotations

import pytest
import torch
from gpu.cases import CASES, QUICK
from gpu.running import on_gpu, pretended
from support.pretended import READS, SENDS

CLOCK = "the clock, on the host, needs it"
ROWS = "how many rows go on decides the shapes of what follows"
FACTORS = "the library of the factorisation looks whether it went well"
SHORT = "one number decides whether the short way will do"
DRAWN = "the clock's devices and rates, known to the host, are sent once"

READ = {
    "engine.engine.Engine.measure _to_copy": "the clock needs which updates crash",
    "engine.round_means.read_costs _to_copy": CLOCK,
    "engine.engine.Engine.compute_limits _to_copy": "how many updates crash is counted on the host",
    "engine.submodel_workload.SubmodelWorkload.record_start _to_copy": CLOCK,
    "engine.submodel_workload.SubmodelWorkload.count_flops _to_copy": CLOCK,
    "core.contracts.cohort.Cohort.host_flat_index _to_copy": CLOCK,
    "downlink.digital.IdealDownlink.send _to_copy": CLOCK,
    "devices.slow_bursts.SlowBursts.draw_factor _to_copy": CLOCK,
    "devices.jitter.Jitter.draw_factor _to_copy": CLOCK,
    "cpu_frequency.joint.JointFrequency._compute_rho _to_copy": CLOCK,
    "submodels.by_link.DeadlineLevels.assign_levels _to_copy": CLOCK,
    "selection.base.draw_random_key _to_copy": CLOCK,
    "selection.channel_aware.Threshold.select_devices _to_copy": CLOCK,
    "algorithms.submodel_training.group_by_level nonzero": ROWS,
    "algorithms.local_samples.split_into_pieces nonzero": ROWS,
    "algorithms.submodels.split_mix.SplitMix.run_local_update nonzero": ROWS,
    "codecs.amp._recover_rows nonzero": ROWS,
    "core.contracts.cohort.Cohort.transmitters nonzero": ROWS,
    "core.contracts.cohort.count_rows_per_trial _to_copy bincount": ROWS,
    "core.contracts.payload.Group.select nonzero": ROWS,
    "devices.faults.Faults._attack_group nonzero": ROWS,
    "engine.local_training.LocalTraining.train_cohort _to_copy": ROWS,
    "engine.update.Update.take nonzero": ROWS,
    "uplink.groups._merge_repeated _unique2": ROWS,
    "uplink.groups.select_rows nonzero": ROWS,
    "uplink.groups.make_signal nonzero": ROWS,
    "factorised.decomposition.svd _linalg_svd": FACTORS,
    "factorised.shrinkage.threshold_singular_values _linalg_eigh": FACTORS,
    "receivers.combiners.compute_first_eigenvector _linalg_eigh": FACTORS,
    "robust.geometric_median.find_coefficients _local_scalar_dense": SHORT,
    "uplink.coherent.arrivals.Arrivals.__init__ _local_scalar_dense": "how late paths are is how "
    "much work they are",
    "uplink.digital.digital.Digital.transmit equal": SHORT,
}
"""Function of otafl that reads numbers from the processor, and the operations that do -> why."""

SENT = {
    "algorithms.personal.fedfomo.HeldOutData.__init__ _to_copy": "which samples are held out",
    "core.constants.get_constant _to_copy": "how many rows a trial has, where that varies",
    "engine.cohorts.Cohorts._build_cohort _to_copy": DRAWN,
    "engine.engine.Engine._flatten_mask _to_copy": DRAWN,
    "engine.workload.WorkloadPlanner.get_limits _to_copy": DRAWN,
    "cpu_frequency.joint.JointFrequency._compute_rho _to_copy": DRAWN,
    "submodels.by_link.ChannelLevels.assign_levels _to_copy": DRAWN,
    "submodels.by_link.DeadlineLevels.assign_levels _to_copy": DRAWN,
    "submodels.dynamic.DynamicLevels.assign_levels _to_copy": DRAWN,
    "uplink.transmission._select_cells _to_copy": "the cells that segments are in",
    "uplink.noncoherent.pairs.transmit _to_copy": "the cells that segments are in",
    "uplink.noncoherent.energies._ways _to_copy": "the cells that segments are in",
    "uplink.intercell.InterCellInterference.scalar_gains _to_copy": "the cells of segments",
}
"""Function of otafl that sends numbers to the processor, and the operation -> which."""

ALLOWED = {
    (what, operation, where)
    for what, table in ((READS, READ), (SENDS, SENT))
    for where, *operations in map(str.split, table)
    for operation in operations
}

COUNTS = {
    "fedavg over ideal": {READS: 1},
    "fedavg over over_the_air": {READS: 1},
    "fedavg over digital": {READS: 2},
    "fedrlr over over_the_air": {READS: 1},
    "pfedbred over over_the_air": {READS: 1},
}
"""How often in a round: once for the clock at its end, once to know whether all
packets arrived. Fewer is better; more needs a reason."""


@pytest.mark.parametrize("case", QUICK)
def test_nothing_else_is_moved_or_made_on_the_host(case: str) -> None:
    lines = pretended(case).lines
    new = {key: line for key, line in lines.items() if key not in ALLOWED}
    assert not new, "what a GPU would be waited for; list it with its reason, or mend it"


@pytest.mark.parametrize("case", COUNTS)
def test_how_often(case: str) -> None:
    """However many trials and devices there are."""
    assert pretended(case).count == COUNTS[case]
    assert pretended(case, trials=5, devices=9).count == COUNTS[case]


@pytest.mark.slow
def test_the_list_is_what_happens() -> None:
    """Every case, and every entry of the list in one of them."""
    seen: set[tuple[str, str, str]] = set()
    for case in CASES:
        seen |= pretended(case).lines.keys()
    assert seen == ALLOWED


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_is_waited_for_there_alone(case: str) -> None:
    _, waited = on_gpu(case)
    assert set(waited) <= {where for _, _, where in ALLOWED}
