"""Mistakes about receivers: each makes the laws of theirs fail that are named, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.mutations import Patch, constant, failing, replaced

FORCING, EIGEN = "receiver uniform_forcing", "receiver eigen"
WEAKEST, OPTIMAL = "the weakest device", "optimality"
MOST, ABOVE = "most received power", "above random combiners"


def last_eigenvector(real: Any) -> Any:
    """The eigenvector that receives the least power of the devices."""

    def first(reach: Any) -> Any:
        products = reach.mT @ reach.conj()
        return torch.linalg.eigh(products).eigenvectors[..., 0]

    return first


def without_budgets(real: Any) -> Any:
    return lambda h, sends, budget: real(h, sends, torch.ones_like(budget))


MUTATIONS: dict[str, tuple[str, set[str], Patch]] = {
    "a bound of one": (
        FORCING,
        {WEAKEST, OPTIMAL},
        constant("otafl.receivers.uniform_forcing.tangent_bound", torch.ones_like),
    ),
    "a bound of the power": (
        FORCING,
        {WEAKEST, OPTIMAL},
        constant("otafl.receivers.uniform_forcing.tangent_bound", lambda power: power),
    ),
    "the last eigenvector": (
        EIGEN,
        {MOST, ABOVE},
        replaced("otafl.receivers.eigen.first_eigenvector", last_eigenvector),
    ),
    "budgets left out": (
        EIGEN,
        {MOST},
        replaced("otafl.receivers.eigen.amplitudes", without_budgets),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, laws, patch = MUTATIONS[mutation]
    failed = failing(f"{family}:", patch, monkeypatch)
    assert failed == {f"{family}: {law}" for law in laws}
