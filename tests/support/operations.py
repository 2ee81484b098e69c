"""Counts the operations that torch really does, by what is dispatched.

Products are counted by FlopCounterMode's formulas, two a multiplication with its addition. It has
none of what else is counted: decompositions by Golub and Van Loan (2013, "Matrix Computations", 4th
edition), and elementwise work, by numbers and kind. Additions, multiplications, divisions,
comparisons, roots, exponentials, logarithms and circular functions are one each; what is moved, or
changes its sign alone, is none. An operation that is in no table is an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

aten = torch.ops.aten

ONE = """
    add sub rsub mul div reciprocal sqrt rsqrt exp log pow maximum minimum clamp clamp_min clamp_max
    relu threshold_backward leaky_relu leaky_relu_backward tanh sin cos
"""

EACH: dict[str, float] = dict.fromkeys(ONE.split(), 1.0) | {
    "addcmul": 2.0,
    "addcdiv": 2.0,
    "lerp": 3.0,  # a + w (b - a)
    "sigmoid": 3.0,  # 1 / (1 + exp(-x))
    "sigmoid_backward": 3.0,
    "tanh_backward": 3.0,
    "gelu": 5.0,  # x / 2 (1 + erf(x / sqrt 2))
    "gelu_backward": 11.0,
    "softplus": 3.0,  # log(1 + exp(x))
    "softplus_backward": 3.0,
    "_safe_softmax": 4.0,
    "_softmax": 4.0,  # less the largest, exponential, sum, quotient
    "_softmax_backward_data": 4.0,
    "_log_softmax": 5.0,
    "_log_softmax_backward_data": 4.0,
    "native_group_norm": 6.0,
    "native_layer_norm": 6.0,
    "_native_batch_norm_legit": 6.0,
}
"""Operations a number of the output, in place or not."""

OF_INPUT: dict[str, float] = {
    "sum": 1.0,
    "mean": 1.0,
    "amax": 1.0,
    "amin": 1.0,
    "scatter_add": 0.0,  # a single number of each sample
    "index_add": 1.0,
    "unfold_backward": 1.0,
    "linalg_vector_norm": 2.0,
    "max_pool2d_with_indices": 1.0,
    "max_pool2d_with_indices_backward": 1.0,
    "native_group_norm_backward": 8.0,
    "native_batch_norm_backward": 8.0,
    "native_layer_norm_backward": 8.0,
    "topk": 3.0,  # comparisons of a selection: Knuth, vol. 3, section 5.2.2
}
"""Operations a number of the first argument."""

MOVED = """
    clone copy cat stack gather index index_select index_put index_copy scatter where fill zero
    zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full new_empty eye take
    empty empty_like empty_strided constant_pad_nd neg abs copysign _to_copy repeat flip embedding
    embedding_dense_backward select_backward slice_backward masked_fill lift_fresh detach
    _unsafe_view nan_to_num scalar_tensor new_empty_strided diag_embed sort
"""
"""What moves numbers; sorted are a handful."""

FREE = frozenset(MOVED.split())


def count_svd_flops(shape: torch.Size, full: bool) -> float:
    """Singular values with both sets of vectors, all of them or as many as values: figure 8.6.1."""
    m, n = max(shape[-2:]), min(shape[-2:])
    if full:
        return 4.0 * m**2 * n + 8.0 * m * n**2 + 9.0 * n**3
    return 14.0 * m * n**2 + 8.0 * n**3


def count_qr_flops(shape: torch.Size) -> float:
    """Householder's method and the columns of Q, each 2 n^2 (m - n / 3): sections 5.2.2, 5.1.6."""
    m, n = max(shape[-2:]), min(shape[-2:])
    return 4.0 * n**2 * (m - n / 3.0)


DECOMPOSITIONS: dict[str, Callable[..., float]] = {
    "_linalg_svd": lambda a, full_matrices=False, *_, **__: count_svd_flops(a.shape, full_matrices),
    "linalg_qr": lambda a, *_: count_qr_flops(a.shape),
    "_linalg_eigh": lambda a, *_, **__: 9.0 * a.shape[-1] ** 3,  # section 8.3.3
    "linalg_cholesky_ex": lambda a, **_: a.shape[-1] ** 3 / 3.0,  # section 4.2.5
    "linalg_solve_triangular": lambda a, b, **_: a.shape[-1] ** 2 * b.shape[-1],  # section 3.1.2
}
"""Operations of one matrix."""


def _count_product(added: Any, a: torch.Size, b: torch.Size, *_: Any, **__: Any) -> int:
    return 2 * math.prod(a) * b[-1]


def _count_convolution_backward(
    g: torch.Size, x: torch.Size, weight: torch.Size, *rest: Any, **__: Any
) -> int:
    """Both gradients cost what the convolution does; torch's formula forgets groups."""
    wanted = rest[7]
    return 2 * g[0] * math.prod(g[2:]) * math.prod(weight) * (wanted[0] + wanted[1])


FORMULAS = {
    aten.baddbmm_: _count_product,
    aten.addmm_: _count_product,
    aten.convolution_backward: _count_convolution_backward,
}
"""Products that FlopCounterMode has no formula of, or a wrong one."""

PRODUCTS = flop_registry | {packet: shape_wrapper(count) for packet, count in FORMULAS.items()}


class Counted:
    """Counts all that is done under it: products, decompositions, elementwise, [operations]."""

    def __init__(self) -> None:
        self._mode = _Counting()
        self.is_counting = False

    def __enter__(self) -> Counted:
        self.is_counting = True
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.is_counting = False
        self._mode.__exit__(*error)

    @property
    def products(self) -> float:
        return self._mode.found["products"]

    @property
    def decompositions(self) -> float:
        return self._mode.found["decompositions"]

    @property
    def elementwise(self) -> float:
        return self._mode.found["elementwise"]

    @property
    def total(self) -> float:
        return self.products + self.decompositions + self.elementwise

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out what is done under it."""
        found = self._mode.found.copy()
        yield
        self._mode.found = found

    def add(self, operations: float) -> None:
        """Count so many elementwise operations."""
        self._mode.found["elementwise"] += operations


class _Counting(TorchDispatchMode):
    """Counts operations by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._single: set[Any] = set(flop_registry)  # what is known not to be composed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = kwargs or {}, func._overloadpacket
        if func not in self._single and packet not in self._single:
            with self:  # in inference mode a composed operation comes as one
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
            self._single.add(func)
        out = func(*args, **kwargs)
        if not func.is_view:
            if packet in PRODUCTS:
                self.found["products"] += PRODUCTS[packet](*args, **kwargs, out_val=out)
            self._count(packet, args, kwargs, out)
        return out

    def _count(self, packet: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        name, plain = packet.__name__, packet.__name__.rstrip("_")
        outputs = (out,) if isinstance(out, Tensor) else tree_leaves(out)
        first = next((one for one in outputs if isinstance(one, Tensor)), None)
        if first is None or not (first.is_floating_point() or plain in OF_INPUT):
            return
        if name in DECOMPOSITIONS:
            matrices = math.prod(args[0].shape[:-2])
            self.found["decompositions"] += matrices * DECOMPOSITIONS[name](*args, **kwargs)
        elif packet in PRODUCTS:
            self.found["elementwise"] += _count_elementwise(name, args, kwargs) * first.numel()
        elif plain in EACH:
            scaled = {kwargs.get("alpha", 1), kwargs.get("value", 1)} - {1, -1}
            self.found["elementwise"] += (EACH[plain] + len(scaled)) * first.numel()
        elif plain in OF_INPUT:
            self.found["elementwise"] += OF_INPUT[plain] * args[0].numel()
        elif plain not in FREE:
            raise AssertionError(f"{packet} is in no table of operations")


def _count_elementwise(name: str, args: Any, kwargs: Mapping[str, Any]) -> float:
    """What a product costs beside it, a number of its output: its addition to something. In place
    and subtracted it is a step of SGD, whose rate the product's factors have got already: a device
    that has the gradient first would multiply each number by it. A bias has a sum in the backward
    pass."""
    if name == "convolution":
        return float(args[2] is not None)
    if name == "convolution_backward":
        wanted = args[-1]
        of_bias = args[0].numel() * wanted[2]
        return of_bias / (args[1] if wanted[0] else args[2]).numel()
    if not name.startswith(("baddbmm", "addmm")):
        return 0.0
    step = name.endswith("_") and kwargs.get("alpha", 1) == -1.0
    return 2.0 if step else 1.0
