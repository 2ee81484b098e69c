"""Tests run on one processor thread, on the CPU, and without a network."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

if "OTAFL_TEST_WITHOUT_NUMBA" in os.environ:  # as where it is not installed
    sys.modules["numba"] = None  # type: ignore[assignment]

gc.disable()  # what is imported and collected is no garbage, and takes long to look through

_num_modules = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, lest a worker be alone with one of them at the end."""
    items.sort(key=estimate_seconds, reverse=True)


def estimate_seconds(item: pytest.Item) -> float:
    """Return the seconds that a slow test says it takes; 0 if it says none."""
    return max((one.kwargs.get("seconds", 0.0) for one in item.iter_markers("slow")), default=0.0)


def pytest_collection_finish() -> None:
    """Leave it out of garbage collection from then on."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup() -> None:
    """Leave out modules that earlier tests have imported as well: each stack that a test runs would
    look through them for garbage, which took a sixth of the time of some."""
    global _num_modules
    if len(sys.modules) > _num_modules:
        _num_modules = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_the_disk() -> Iterator[None]:
    """Files are not forced onto the disk: tests end programs, not machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which fails for what is not open, as fsync does
        yield


@pytest.fixture(autouse=True, scope="session")
def data_folder() -> str | None:
    """The folder of real data sets, for a test that asks; others find none."""
    return os.environ.pop("OTAFL_DATA_DIR", None)


@pytest.fixture
def real_data(data_folder: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data sets are found, or the test is skipped."""
    if data_folder is None:
        pytest.skip("no folder of data sets here")
    monkeypatch.setenv("OTAFL_DATA_DIR", data_folder)


@pytest.fixture
def fewest_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages over long-term states are over few, for tests that do not compare them."""
    from otafl.channels import custom
    from otafl.csi import long_term

    for module in (custom, long_term):
        monkeypatch.setattr(module, "DRAWS", 256)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that connects to another machine fails, whatever catches the error."""

    def refuse(_: socket.socket, address: object) -> NoReturn:
        pytest.fail(f"a test tried to connect to {address}")

    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        local = self.family == socket.AF_UNIX or str(address).startswith(("('127.", "('::1'"))
        (connect if local else refuse)(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def signals_arrive() -> Iterator[None]:
    """Programs that the test starts do not inherit an ignored SIGINT or SIGHUP, as they would where
    the tests are a shell's background job, or below `nohup`."""
    before = [
        (number, signal.signal(number, handler))
        for number, handler in (
            (signal.SIGINT, signal.default_int_handler),
            (signal.SIGHUP, signal.SIG_DFL),
        )
    ]
    yield
    for number, handler in before:
        signal.signal(number, handler)
