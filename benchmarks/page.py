"""What the parts of a benchmark's page share: tables, numbers, points to measure at."""

from __future__ import annotations

import torch
from torch import Tensor

import otafl
from otafl.factorised.lowrank import LowRank
from otafl.results.origins import get_device_name


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def orthonormal_point(m: int, n: int, rank: int, rows: int = 1) -> LowRank:
    """Random rows of rank R, kept in memory as otafl keeps them."""
    u, v = (torch.linalg.qr(normal(i, rows, side, rank))[0] for i, side in ((2, m), (3, n)))
    s = torch.linspace(2.0, 1.0, rank).repeat(rows, 1)
    return LowRank(u.mT.contiguous().mT, s, v.mT.contiguous().mT)


def name_machine() -> str:
    """Return the versions and the processor."""
    return f"torch {torch.__version__}, otafl {otafl.__version__}, {get_device_name('cpu')}"


def duration(time_s: float) -> str:
    return f"{three(1e6 * time_s)} µs" if time_s < 1e-3 else f"{three(1e3 * time_s)} ms"


def three(number: float) -> str:
    """Three digits, or all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"


def header(*names: str) -> None:
    row(*names)
    print("|" + "---|" * len(names))


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
