"""A recorder of operations for the pretended processor, with what makes a CUDA graph dangerous: a
replay runs the same operations on the same memory, whatever the host would decide now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from support.pretended import MAKES, READS, SENDS, Processor, is_composite, list_tensors
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from otafl.algorithms.base import Outcome
from otafl.engine import local_training
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
    """Tapes; what the processor would wait for is not recorded.

    has_waited: whether that kept any local work from being recorded.
    """

    def __init__(self, one: Processor) -> None:
        self._one = one
        self.has_waited = False

    def rehearse(self, run: Callable[[], Outcome]) -> Outcome:
        before = self._one.count.copy()
        outcome = run()
        if any(self._one.count[what] > before[what] for what in (READS, SENDS, MAKES)):
            self.has_waited = True
            raise NotRecordableError
        return outcome

    def record(self, run: Callable[[], Outcome]) -> tuple[Outcome, Callable[[], None]]:
        tape = Tape()
        with tape:
            outcome = run()
        return outcome, tape.replay


@contextmanager
def use_tapes(patch: pytest.MonkeyPatch, one: Processor) -> Iterator[TapeRecorder]:
    """Let engines on the pretended processor record their local work."""
    recorder = TapeRecorder(one)
    patch.setattr(
        local_training,
        "make_recorder",
        lambda device: None if device.type == "cpu" else recorder,
    )
    yield recorder
