"""Products and exponentials of torch's mathematical library, for compiled loops.

torch's products and exponentials have last bits that no other program has. On x86 they are those of
Intel's MKL, which is part of torch's own library. Compiled loops call it by address, without the
dispatch of a tensor operation. Only modules of compiled loops import this one, see
`otafl.core.compiled_module`.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import llvmlite.binding
import torch
from llvmlite import ir
from numba.core import cgutils, types

from otafl.core.compiling import make_intrinsic

_SYMBOLS = {"sgemm_": "otafl_sgemm", "vmsExp": "otafl_vms_exp"}
"""Functions of the library, and their names in compiled code."""

_EXP_MODE = 0x2 | 0x140000 | 0x100
"""Mode of torch's exponential: high accuracy, subnormal numbers kept, errors ignored."""

_PLAIN, _TRANSPOSED = ord("N"), ord("T")

_POINTER = ir.IntType(8).as_pointer()

_NEXT_LEVEL = 2
"""Locality of a prefetch: the cache behind the nearest."""


@functools.cache
def link_library() -> bool:
    """Make the functions known to compiled code. Return whether torch's library has them."""
    for path in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        try:
            library = ctypes.CDLL(str(path))  # the one that torch has loaded
        except OSError:
            continue
        if all(hasattr(library, name) for name in _SYMBOLS):
            for name, alias in _SYMBOLS.items():
                address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
                llvmlite.binding.add_symbol(alias, address)
            return True
    return False


@make_intrinsic
def exponentiate(context: Any, count: Any, address: Any) -> Any:
    """Replace `count` adjacent numbers of single precision at an address by their exponentials."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, place = values
        whole, mode = ir.IntType(32), ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [whole, _POINTER, _POINTER, mode])
        call = cgutils.get_or_insert_function(builder.module, kind, _SYMBOLS["vmsExp"])
        pointer = builder.inttoptr(place, _POINTER)
        builder.call(call, [builder.trunc(number, whole), pointer, pointer, mode(_EXP_MODE)])
        return context.get_dummy_value()

    return types.void(types.int64, types.uintp), generate


@make_intrinsic
def multiply_columns(
    context: Any,
    a_turned: Any,
    b_turned: Any,
    rows: Any,
    columns: Any,
    terms: Any,
    factor: Any,
    a: Any,
    a_step: Any,
    b: Any,
    b_step: Any,
    kept: Any,
    c: Any,
    c_step: Any,
) -> Any:
    """Compute C = factor A B + kept C in single precision, all in the order of columns, as SGEMM.

    A, B and C are addresses, each with the distance of its columns. A and B are transposed first if
    `a_turned` and `b_turned` are not zero.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        letter, whole = ir.IntType(8), ir.IntType(32)
        arguments = []
        for value, kind in zip(values, signature.args, strict=True):
            if kind == types.uintp:
                arguments.append(builder.inttoptr(value, _POINTER))
                continue
            given = value
            if kind == types.boolean:
                given = builder.select(
                    context.cast(builder, value, kind, types.boolean),
                    letter(_TRANSPOSED),
                    letter(_PLAIN),
                )
            elif kind == types.int64:
                given = builder.trunc(value, whole)
            place = cgutils.alloca_once_value(builder, given)
            arguments.append(builder.bitcast(place, _POINTER))
        kind = ir.FunctionType(ir.VoidType(), [_POINTER] * len(arguments))
        call = cgutils.get_or_insert_function(builder.module, kind, _SYMBOLS["sgemm_"])
        builder.call(call, arguments)
        return context.get_dummy_value()

    flag, size, real, place = types.boolean, types.int64, types.float32, types.uintp
    product = (flag, flag, size, size, size, real, place, size, place, size, real, place, size)
    return types.void(*product), generate


@make_intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Ask for the memory at an address, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_POINTER, flag, flag, flag])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.inttoptr(values[0], _POINTER)
        builder.call(call, [pointer, flag(0), flag(_NEXT_LEVEL), flag(1)])
        return context.get_dummy_value()

    return types.void(types.uintp), generate
