"""Recorded local work gives the numbers of local work that is launched round by round.

On the pretended GPU a tape takes the place of a CUDA graph: its replay runs the recorded operations
on the same memory. So a number or a decision of the recorded round that should be another in a
later one shows here, without a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract.small import close, engine, run, scores
from gpu.cases import CASES, QUICK
from support.pretended import is_composite, list_tensors, use_processor
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from otafl.algorithms.base import Outcome
from otafl.core.contracts import Tensors
from otafl.engine import local_training
from otafl.engine.engine import Engine
from otafl.engine.local_graphs import NotRecordableError


class Tape(TorchDispatchMode):
    """Operations in their order, with their very arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        returns = [one.alias_info for one in func._schema.returns]
        if any(one is not None and not one.is_write for one in returns):
            return out  # a view of memory that has its place
        writes = any(one is not None for one in returns)
        made = [] if writes else list_tensors(out)
        self._calls.append((func, args, kwargs, made))
        return out

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, made in self._calls:
                out = func(*args, **kwargs)
                for to, new in zip(made, list_tensors(out), strict=bool(made)):
                    to.copy_(new)


class TapeRecorder:
    """Tapes instead of CUDA graphs."""

    def rehearse(self, run: Callable[[], Outcome]) -> Outcome:
        return run()

    def record(self, run: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:
        tape = Tape()
        with tape:
            outcome = run()
        return outcome, tape.replay


def run_on_tapes(case: str, patch: pytest.MonkeyPatch) -> tuple[Tensors, int]:
    """The scores of a case on the pretended processor, and how often tapes were replayed."""
    patch.setattr(
        local_training,
        "make_recorder",
        lambda device: None if device.type == "cpu" else TapeRecorder(),
    )
    with use_processor(patch):
        ran = make.__wrapped__(case, "cuda")
        graphs = ran.training.graphs
        return scores(ran), 0 if graphs is None else graphs.num_replays


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

RECORDED = (
    *("fedavg ", "tdpfed ", "pfedbred ", "scaffold ", "steps", "dropout", "epochs", "chunks"),
    MANY_CHUNKS,
)
"""Beginnings of cases that are replayed on a pretended GPU: their local work waits for nothing."""


def keys(case: str) -> dict[str, Any]:
    return CASES[case] if case in CASES else TOGETHER[case]


@functools.cache
def make(case: str, device: str, graphs: bool = True) -> Engine:
    """The engine of a case after the rounds."""
    own = {"engine.dtype": "float64", "engine.device": device, "engine.cuda_graphs": graphs}
    return run(engine({**own, **keys(case)}), ROUNDS)


@pytest.mark.parametrize(
    "case", [case for case in (*TOGETHER, *METHODS) if case.startswith(RECORDED)]
)
def test_replays_agree_with_launches(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, replays = run_on_tapes(case, monkeypatch)
    assert (replays == 0) == (case == MANY_CHUNKS)
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
    found, replays = run_on_tapes(case, monkeypatch)
    assert replays == 0
    close(found, scores(make(case, "cpu")), ROUNDING)


def test_user_defined_parts_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_training, "make_recorder", lambda device: TapeRecorder())
    with use_processor(monkeypatch):
        for keys, is_recorded in (
            ({}, True),
            ({"model": "contract.small:normed"}, False),
            ({"engine.cuda_graphs": False}, False),
        ):
            graphs = engine({"engine.device": "cuda", **keys}).training.graphs
            assert (graphs is not None) == is_recorded, keys
