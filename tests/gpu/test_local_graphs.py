"""Recorded local work gives the numbers of local work that is launched round by round.

On the pretended GPU a tape takes the place of a CUDA graph: its replay runs the recorded operations
on the same memory. So a number or a decision of the recorded round that should be another in a
later one shows here, without a GPU.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from contract.small import close, engine, run, scores
from gpu.cases import CASES, QUICK
from support.pretended import use_processor
from support.tape import TapeRecorder, use_tapes

from otafl.engine.engine import Engine
from otafl.engine.local_graphs import NotRecordableError

ROUNDS = 6

ROUNDING = 1e-9
"""Largest relative difference."""

MANY_CHUNKS = "more chunks than graphs"

TOGETHER: dict[str, dict[str, Any]] = {
    "other devices in each round": {"devices.participants": 2},
    "a number of devices by chance": {"devices.availability": {"name": "markov"}},
    "a few of them send": {"devices.senders": 2},
    "chunks": {"engine.chunk_mb": 0.02},
    MANY_CHUNKS: {"engine.chunk_mb": 1e-6},
    "epochs": {"training": {"rounds": 4, "batch_size": 40, "local_epochs": 2}},
    "dropout": {"model": {"name": "mlp", "hidden": [8, 4], "dropout": 0.4}},
    "false labels": {"faults": {"byzantine": 1, "attack": "label_flip"}},
    "a noisy downlink": {"downlink": {"name": "analog", "snr_db": 10}},
    "steps that shrink": {"algorithm": {"name": "fedavg", "decay": 0.5}},
    "roles that alternate": {"algorithm": {"name": "lora", "mode": "alternate", "rank": 1}},
    "models of their own, of few devices": {"algorithm": "ditto", "devices.participants": 2},
    "one trial, whose devices share the broadcast": {"trials": 1},
    "augmented images": {"data.augment": {"crop": 1}},
    "error feedback": {"codec": {"name": "topk", "keep": 0.2}},
}

METHODS = [case for case in QUICK if " over " in case]

FIRST = ("fedavg ", "fedrlr ", "tdpfed ", "pfedbred ", "lora ", "fedhm ", "scaffold ")

MARKED = [
    case if case.startswith(FIRST) else pytest.param(case, marks=pytest.mark.slow)
    for case in METHODS
]
"""Methods; those that FIRST does not name are slow tests."""

ROWS = "how many rows go on decides the shapes of what follows"
SLICES = "which channels a round takes decides on slices"

KEPT_OUT = {
    "algorithms.submodel_training.group_by_level nonzero": ROWS,
    "core.contracts.cohort.count_rows_per_trial _to_copy": ROWS,
    "core.contracts.cohort.count_rows_per_trial bincount": ROWS,
    "algorithms.local_samples.split_into_pieces nonzero": ROWS,
    "algorithms.submodels.split_mix.SplitMix.run_local_update nonzero": ROWS,
    "algorithms.personal.fedfomo.HeldOutData.__init__ _to_copy": "which samples are held out",
    "algorithms.submodel_training.train_ _local_scalar_dense": "which milestones are reached",
    "algorithms.submodels.fedrolex.FedRolex.run_local_update _local_scalar_dense": SLICES,
    "algorithms.adapters.lora.Lora._get_roles _local_scalar_dense": "which factors a round trains",
    "algorithms.low_rank.fedrlr.FedRLR.run_local_update _local_scalar_dense": "after which steps "
    "points are orthonormalised anew",
    "algorithms.submodels.width_slices.write_slices_ _local_scalar_dense": SLICES,
    "algorithms.submodels.width_slices.slice_params _local_scalar_dense": SLICES,
    "algorithms.submodels.width_slices._find_runs _local_scalar_dense": SLICES,
    "factorised.shrinkage.threshold_singular_values _linalg_eigh": "the library looks whether the "
    "factorisation went well",
}
"""Function that waits in local work, so that it is not recorded, and the operation -> why."""


def keys(case: str) -> dict[str, Any]:
    return CASES[case] if case in CASES else TOGETHER[case]


@functools.cache
def make(case: str, device: str, graphs: bool = True) -> Engine:
    """The engine of a case after the rounds."""
    own = {"engine.dtype": "float64", "engine.device": device, "engine.cuda_graphs": graphs}
    return run(engine({**own, **keys(case)}), ROUNDS)


def count_replays(one: Engine) -> int:
    return 0 if one.training.graphs is None else one.training.graphs.num_replays


@pytest.mark.parametrize("case", [*TOGETHER, *MARKED])
def test_replays_agree_with_launches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with use_processor(monkeypatch) as one, use_tapes(monkeypatch, one) as tapes:
        ran = make.__wrapped__(case, "cuda")
        found = scores(ran)
        assert tapes.waited <= KEPT_OUT.keys()
        is_eager = ran.training.graphs is None or case == MANY_CHUNKS or bool(tapes.waited)
        assert (count_replays(ran) == 0) == is_eager
    close(found, scores(make(case, "cpu")), ROUNDING)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("case", [*TOGETHER, *METHODS])
def test_graphs_agree_with_launches(case: str) -> None:
    plain = scores(make(case, "cuda", graphs=False))
    close(scores(make(case, "cuda")), plain, ROUNDING)


def test_a_failed_recording_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TapeRecorder, run: Any) -> Any:
        run()
        raise NotRecordableError

    monkeypatch.setattr(TapeRecorder, "record", fail)
    case = "steps that shrink"
    with use_processor(monkeypatch) as one, use_tapes(monkeypatch, one):
        ran = make.__wrapped__(case, "cuda")
        found = scores(ran)
        assert count_replays(ran) == 0
    close(found, scores(make(case, "cpu")), ROUNDING)


def test_user_defined_parts_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    with use_processor(monkeypatch) as one, use_tapes(monkeypatch, one):
        own = {"engine.device": "cuda", "model": "contract.small:normed"}
        assert engine(own).training.graphs is None
        assert engine({"engine.device": "cuda"}).training.graphs is not None
        off = engine({"engine.device": "cuda", "engine.cuda_graphs": False})
        assert off.training.graphs is None
