"""The message about an exception in the user's code: its key, the object and the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.command import call
from support.own_modules import write_custom_module

from otafl.core.contracts import Broadcast
from otafl.core.errors import UserError
from otafl.user_code import loading

pytestmark = pytest.mark.exact

MODULE = """\
import torch

def policy(link, share=0.5):
    return link.budgt, share

def sizes(x, y):
    return deeper(x, y)

def deeper(x, y):
    return x + y

class Held:
    def __call__(self, broadcast):
        return broadcast.tensors, broadcast.num_coordinate

def narrow(input_shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(63, classes))
"""
SCENARIO = """\
name: s
model: {hidden: [4]}
devices: {count: 3}
training: {rounds: 2, batch_size: 4}
power: {name: "blamed_parts:policy", share: 0.25}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with a module of the user's."""
    with write_custom_module("blamed_parts", MODULE, tmp_path, monkeypatch) as folder:
        yield folder


def raised(part: str, *given: Any, key: str = "power.name", **options: Any) -> Exception:
    """What is told of the error that the module's object raises."""
    made = loading.load(f"blamed_parts:{part}", key)
    with pytest.raises(Exception) as error:  # noqa: PT011
        (made() if isinstance(made, type) else made)(*given, **options)
    told = loading.explain_error(error.value)
    assert told is error.value or told.__cause__ is error.value
    return told


def test_the_innermost_line() -> None:
    told = raised("sizes", torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64))
    assert isinstance(told, UserError)
    first, line, *rest = str(told).splitlines()
    assert first.startswith(
        "power.name: 'blamed_parts:sizes' raises RuntimeError at blamed_parts.py:10: The size of"
    )
    assert line == "    return x + y"
    assert rest == ["  OTAFL_TRACEBACK=1 shows the traceback"]


def test_the_attribute_that_was_meant_is_suggested() -> None:
    said = str(raised("Held", Broadcast({"model": torch.zeros(1)}), key="downlink.name"))
    assert said.startswith(
        "downlink.name: 'blamed_parts:Held' raises AttributeError at blamed_parts.py:14: "
        "'Broadcast' object has no attribute 'num_coordinate'; did you mean 'num_coordinates'?\n"
    )


def test_errors_of_otafl_are_its_own() -> None:
    """And so are those of code that no scenario has named, on the way to them too."""
    loading.load("blamed_parts:policy", "power.name")
    with pytest.raises(AttributeError) as error:
        Broadcast({}).expand_rows(None, 0, 1)  # type: ignore[arg-type]
    assert loading.explain_error(error.value) is error.value  # though a line of this test called it
    stripped = error.value.with_traceback(error.tb.tb_next)
    assert loading.explain_error(stripped) is stripped


def test_an_error_while_it_is_imported_has_a_place(home: Path) -> None:
    (home / "blamed_import.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(UserError, match=r"\(ZeroDivisionError at blamed_import\.py:2: division"):
        loading.load("blamed_import:f", "power.name")


@pytest.mark.slow
def test_the_command_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One message and no traceback; `check` has the line of the scenario, and in a sweep others are
    finished."""
    (home / "s.yaml").write_text(SCENARIO)
    said = "power.name: 'blamed_parts:policy' raises AttributeError at blamed_parts.py:4: 'Link' "
    call("run", "s.yaml", "--quiet", code=2)
    text = capsys.readouterr().err
    assert text.startswith(f"otafl: error: {said}object has no attribute 'budgt'; did you mean 'bu")
    assert "Traceback" not in text
    call("check", "s.yaml", code=2)
    assert f"otafl: error: s.yaml:5:9: {said}" in capsys.readouterr().err
    both = "sweep.power=[gbma, {name: 'blamed_parts:policy', share: 0.25}]"
    call("sweep", "s.yaml", "--quiet", "--set", both, "--out", "out", code=1)
    text = capsys.readouterr().err
    assert f"power=policy(share=0.25): {said}" in text
    assert "Traceback" in next(Path("out").rglob("*.txt")).read_text()
    monkeypatch.setenv(loading.TRACEBACK, "1")
    call("run", "s.yaml", "--quiet", code=2)
    assert 'blamed_parts.py", line 4, in policy' in capsys.readouterr().err


def test_a_module_without_a_line_of_the_users(home: Path, capsys: pytest.CaptureFixture) -> None:
    """A layer of other inputs than the data have fails in the code of PyTorch alone."""
    text = SCENARIO.replace("{hidden: [4]}", "blamed_parts:narrow").replace("power: {", "# ")
    (home / "s.yaml").write_text(text)
    call("check", "s.yaml", code=2)
    said = capsys.readouterr().err
    assert "s.yaml:2:1: model.name: 'blamed_parts:narrow' raises RuntimeError: " in said
