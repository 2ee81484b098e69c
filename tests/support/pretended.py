"""A processor that is none: its tensors lie in the host's memory, but say that they are elsewhere.

It refuses what a GPU would refuse, such as a tensor of the host beside its own in one operation or
a NumPy array made of one, and notes what a GPU's host would wait for: numbers that are read from
the processor or sent to it; and tensors that are made on the host. So the moves of a round are
tested where there is no GPU. The operations are those of the CPU.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from otafl.engine import assembly

NAME = "pretended"

READS, SENDS, MAKES = "reads", "sends", "makes"
"""What is noted: numbers read from the processor, sent to it, tensors made on the host."""

OVERLOADS = torch.ops.aten
OF_UNKNOWN_SIZE = {
    OVERLOADS.nonzero.default,
    OVERLOADS.masked_select.default,
    OVERLOADS._unique2.default,
    OVERLOADS.unique_dim.default,
    OVERLOADS.unique_consecutive.default,
    OVERLOADS.bincount.default,
    OVERLOADS.repeat_interleave.Tensor,
}
"""Operations whose result is as large as the numbers say: the host waits to know."""

LOOKS = {
    OVERLOADS._linalg_check_errors.default,
    OVERLOADS._linalg_svd.default,
    OVERLOADS._linalg_eigh.default,
}
"""Operations in which the host looks whether a factorisation went well."""

INDEXED = {
    OVERLOADS.index.Tensor,
    OVERLOADS.index_put.default,
    OVERLOADS.index_put_.default,
    OVERLOADS._index_put_impl_.default,
}
"""Operations that move indices from the host, and wait where they are bool."""

COPIES = {OVERLOADS.copy_.default, OVERLOADS._to_copy.default}


class SimulatedTensor(Tensor):
    """A tensor of the pretended processor, over one that the host holds."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> SimulatedTensor:
        held = held.resolve_conj().resolve_neg()  # the outer tensor would not know of it
        with torch.inference_mode(False):  # views of what was made before must not be of inference
            made = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=f"{NAME}:0",
                requires_grad=False,
            )
        made.held = held
        return made

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.held!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} of a pretended processor's tensor outside of `Processor`")


class Processor(TorchDispatchMode):
    """Compute what is asked of the pretended processor; count: what is noted -> how often."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; PyTorch would see to that in each operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):  # inference mode hands these on whole
            with self:
                return func.decompose(*args, **kwargs)
        asked = kwargs.get("device")
        to = None if asked is None else torch.device(asked).type == NAME
        if to:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        given: list[Tensor] = []
        plain_args, plain_kwargs = _take_held(args, given), _take_held(kwargs, given)
        ours = [leaf for leaf in given if isinstance(leaf, SimulatedTensor)]
        there = bool(ours) if to is None else to
        _check(func, args, given, ours)
        out = func(*plain_args, **plain_kwargs)
        what = _describe_call(func, args, kwargs, len(given), len(ours), there, out)
        if what is not None:
            self.count[what] += 1
        if has_effects(func):
            for one in ours:
                if one.held.shape != one.shape or one.held.stride() != one.stride():
                    raise RuntimeError(f"{func} changed the shape of a tensor in place")

        def handed_out(value: Tensor) -> Tensor:
            for one in given:  # of operations in place
                if value is (one.held if isinstance(one, SimulatedTensor) else one):
                    return one
            return SimulatedTensor(value) if there else value

        return map_tensors(handed_out, out)


def list_tensors(value: Any) -> list[Tensor]:
    """List the tensors in lists, tuples and dicts; `tree_leaves` takes ten times as long."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [one for inner in value for one in list_tensors(inner)]


def _take_held(value: Any, given: list[Tensor]) -> Any:
    """Replace tensors in lists, tuples and dicts by those that the host holds, and list them."""
    if isinstance(value, Tensor):
        given.append(value)
        return value.held if isinstance(value, SimulatedTensor) else value
    if isinstance(value, list | tuple):
        held = [_take_held(inner, given) for inner in value]
        return held if isinstance(value, list) else tuple(held)
    if isinstance(value, dict):
        return {key: _take_held(inner, given) for key, inner in value.items()}
    return value


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to the tensors in lists, tuples and dicts, as `tree_map` does."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(change, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        changed = [map_tensors(change, inner) for inner in value]
        return changed if isinstance(value, list) else tuple(changed)
    return value


def _check(func: Any, args: Any, given: list[Tensor], ours: list[SimulatedTensor]) -> None:
    """Refuse tensors of the host in an operation of the processor, as a GPU does; a number in one
    will do, and indices."""
    if not ours or func in COPIES:
        return
    for one in args[:1] if func in INDEXED else given:
        if not isinstance(one, SimulatedTensor) and one.dim():
            raise RuntimeError(f"{func}: a tensor {list(one.shape)} of the host beside others")


def _describe_call(
    func: Any, args: Any, kwargs: Any, given: int, ours: int, there: bool, out: Any
) -> str | None:
    """What is noted of an operation on so many tensors, some of them ours, whose result is there
    or on the host."""
    made = list_tensors(out)
    if func is OVERLOADS.copy_.default:
        target, source = (isinstance(one, SimulatedTensor) for one in args[:2])
        return None if source == target else READS if source else SENDS
    if not ours:
        if given:
            return SENDS if there else None
        host = not there and any(leaf.device.type == "cpu" for leaf in made)
        return MAKES if host else None
    if not there or not made or func in LOOKS:
        return READS
    if func in OF_UNKNOWN_SIZE and kwargs.get("output_size") is None:
        return READS
    if func in INDEXED:
        if any(leaf.dtype is torch.bool for leaf in list_tensors(args[1])):
            return READS
        return SENDS if given > ours else None  # a number to put is sent as well
    return None


@functools.cache
def is_composite(func: Any) -> bool:
    key = "CompositeImplicitAutograd"
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


@functools.cache
def has_effects(func: Any) -> bool:
    """Whether an operation changes a tensor in place."""
    return bool(func._schema.is_mutable)


@functools.cache
def register_device() -> torch.device:
    _setup_privateuseone_for_python_backend(NAME)
    return torch.device(NAME, 0)


@contextmanager
def use_processor(patch: pytest.MonkeyPatch) -> Iterator[Processor]:
    """Let engines with `engine.device: cuda` that are made inside compute on the pretended
    processor."""
    device, real = register_device(), assembly.select_torch_device
    patch.setattr(
        assembly, "select_torch_device", lambda name: device if name == "cuda" else real(name)
    )
    mode, before = Processor(), torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` then moves what it has made
    try:
        with mode:
            yield mode
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
