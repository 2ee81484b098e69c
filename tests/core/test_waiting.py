"""Waiting threads of OpenMP sleep, unless the user chose otherwise."""

from __future__ import annotations

import os

import pytest

from otafl.core.waiting import choose_wait_policy
from otafl.sweeping import local

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("stated", [None, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_threads_sleep_unless_the_user_chose(
    stated: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    if stated is not None:
        monkeypatch.setenv(stated, os.environ.get(stated, "0"))
    chosen = choose_wait_policy()
    assert chosen == ({} if stated else {"OMP_WAIT_POLICY": "passive"})
    assert all(chosen.items() <= own.items() for own in local._build_environments(2))
