"""A processor that is none: its tensors lie in the host's memory, but say that they are elsewhere.

It refuses what a GPU would refuse: a tensor of the host beside its own in one operation, or a NumPy
array made of one. So a tensor that was left on the host is found where there is no GPU. The
operations are those of the CPU.
"""

from __future__ import annotations

import functools
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

OVERLOADS = torch.ops.aten
INDEXED = {
    OVERLOADS.index.Tensor,
    OVERLOADS.index_put.default,
    OVERLOADS.index_put_.default,
    OVERLOADS._index_put_impl_.default,
}
"""Operations whose indices may lie on the host."""

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
    """Compute what is asked of the pretended processor."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; PyTorch would see to that in each operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):  # inference mode hands these on whole
            with self:
                return func.decompose(*args, **kwargs)
        given = [*list_tensors(args), *list_tensors(kwargs)]
        ours = [one for one in given if isinstance(one, SimulatedTensor)]
        there = bool(ours)
        if kwargs.get("device") is not None:
            there = torch.device(kwargs["device"]).type == NAME
            kwargs = {**kwargs, "device": torch.device("cpu")} if there else kwargs
        if ours and func not in COPIES:
            for one in args[:1] if func in INDEXED else given:
                if not isinstance(one, SimulatedTensor) and one.dim():  # a number will do
                    raise RuntimeError(f"{func}: a tensor {list(one.shape)} of the host")
        out = func(*map_tensors(get_held, args), **map_tensors(get_held, kwargs))
        if any(one.held.shape != one.shape or one.held.stride() != one.stride() for one in ours):
            raise RuntimeError(f"{func} changed the shape of a tensor in place")

        def hand_out(value: Tensor) -> Tensor:
            changed = (one for one in given if value is get_held(one))  # of operations in place
            return next(changed, SimulatedTensor(value) if there else value)

        return map_tensors(hand_out, out)


def get_held(value: Tensor) -> Tensor:
    """Return what the host holds of a tensor."""
    return value.held if isinstance(value, SimulatedTensor) else value


def list_tensors(value: Any) -> list[Tensor]:
    """List the tensors in lists, tuples and dicts; `tree_leaves` takes ten times as long."""
    found: list[Tensor] = []
    map_tensors(lambda one: found.append(one) or one, value)
    return found


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


@functools.cache
def is_composite(func: Any) -> bool:
    key = "CompositeImplicitAutograd"
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


@functools.cache
def register_device() -> torch.device:
    _setup_privateuseone_for_python_backend(NAME)
    return torch.device(NAME, 0)


@contextmanager
def use_processor(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let engines with `engine.device: cuda` that are made inside compute on the pretended
    processor."""
    device, real = register_device(), assembly.select_torch_device
    patch.setattr(
        assembly, "select_torch_device", lambda name: device if name == "cuda" else real(name)
    )
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor` then moves what it has made
    try:
        with Processor():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
