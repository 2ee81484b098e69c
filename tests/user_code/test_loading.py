"""What a scenario may name as code, and what of it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from contract.small import scenario
from support.own_modules import write_custom_module

from otafl.core.errors import UserError
from otafl.preflight import report
from otafl.scenario import ScenarioError
from otafl.user_code import loading

pytestmark = pytest.mark.exact

OWN = """\
import functools, os
from os import system
from subprocess import run
from types import SimpleNamespace

def plain(a, b=1):
    return a, b

partial = functools.partial(plain, b=2)
hidden = functools.partial(system)
array = __import__("numpy").array

class Kind:
    def __init__(self, a): ...

class Called:
    def __call__(self, a): ...

instance = Called()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with write_custom_module("fits", OWN, tmp_path, monkeypatch) as folder:
        yield folder


def test_what_is_the_user_s_is_taken(own: Path) -> None:
    for name in ("plain", "partial", "Kind", "instance"):
        loading.load_checked(f"fits:{name}", "data.name", {"a": 1})


def test_what_is_python_s_own_or_built_in_is_refused(own: Path) -> None:
    names = ("system", "run", "hidden", "SimpleNamespace", "array")
    for name in ("os:system", "builtins:exec", *(f"fits:{one}" for one in names)):
        with pytest.raises(UserError, match=r"^data.name: .* is built in or part of Python itself"):
            loading.load(name, "data.name")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "^data.a: must be given"),
        ({"a": 1, "c": 1}, r"^data.c: unknown key of 'fits:plain' \(known keys: a, b\)"),
    ],
)
def test_what_does_not_fit_is_not_called(options: dict[str, int], said: str, own: Path) -> None:
    with pytest.raises(UserError, match=said):
        loading.load_checked("fits:plain", "data.name", options)


@pytest.mark.parametrize(
    "keys",
    [
        {"data": {"name": "os:system", "command": "touch was_run"}},
        {"channel": "rayleigh", "power": {"name": "os:system"}},
        {"track": "os:system"},
        {"algorithm": "os:system"},
    ],
)
def test_a_scenario_that_names_a_shell_is_refused(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from otafl.preflight import rehearse

    monkeypatch.chdir(tmp_path)
    tree = scenario({}).model_dump(mode="json", exclude_unset=True) | keys
    with pytest.raises(ScenarioError, match="part of Python itself"):
        report(tree, try_fn=rehearse)
    assert os.listdir(tmp_path) == []


def test_the_working_folder_is_searched_last_and_only_for_what_is_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h5netcdf.py").write_text("raise SystemExit('the code of a stranger')")
    (tmp_path / "only_here.py").write_text("def fits(a): ...")
    path = [folder for folder in sys.path if folder not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", list(path))
    loading.load("h5netcdf:File", "model.name")
    loading.load("otafl:run", "model.name")
    assert sys.path == path
    loading.load("only_here:fits", "model.name")
    assert sys.path == [*path, str(tmp_path)]
    sys.modules.pop("only_here")
    loading.sources._imported.clear()
