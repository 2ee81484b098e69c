"""Variables of the programs of otafl: threads sleep while they wait, and no library takes compiled
code from a folder of others; what the user has set stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from otafl.core.program_variables import choose_variables
from otafl.sweeping import workers

pytestmark = pytest.mark.exact

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
CODE = ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES", "TORCHINDUCTOR_CACHE_DIR")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*WAITING, *CODE, "ORT_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("stated", [None, *WAITING])
def test_threads_sleep_unless_the_user_chose(
    stated: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stated is not None:
        monkeypatch.setenv(stated, "0")
    chosen = choose_variables()
    waiting = {name: value for name, value in chosen.items() if name in WAITING}
    assert waiting == ({} if stated else {"OMP_WAIT_POLICY": "passive"})
    assert all(chosen.items() <= own.items() for own in workers._build_environments(2))


def test_compiled_code_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": ""}
    expected["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "cache" / "torchinductor")
    assert expected.items() <= choose_variables().items()
    for name in CODE:
        monkeypatch.setenv(name, "chosen")
    assert not set(CODE) & set(choose_variables())
