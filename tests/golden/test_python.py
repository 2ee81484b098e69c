"""`otafl.run` and `otafl.sweep` take what the commands take."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import otafl
from otafl import sweeping
from otafl.core.console import Progress

SMALL = {
    "name": "small",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 2},
    "training": {"rounds": 2, "local_steps": 1},
}


def called(monkeypatch: pytest.MonkeyPatch, name: str, *args: Any, **options: Any) -> dict:
    """The arguments with which the shared code of both interfaces is called."""
    found: dict[str, Any] = {}
    signature = inspect.signature(getattr(sweeping, name))

    def note(*args: Any, **kwargs: Any) -> None:
        found.update(signature.bind(*args, **kwargs).arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sweeping, name, note)
        getattr(otafl, name)(*args, **options)
    return found


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_options_reach_the_code_that_the_commands_call(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"workers": 3, "checkpoint_every": 7}
    scenario = otafl.load_scenario(SMALL)
    found = called(monkeypatch, name, scenario, tmp_path / "r.nc", progress=True, **options)
    assert {key: found[key] for key in options} == options
    assert isinstance(found["progress"], Progress)
    found = called(monkeypatch, name, SMALL, tmp_path / "r.nc", scheduler="tls://x")
    assert found["scheduler"] == "tls://x"
    assert found["progress"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"progress": "yes"}, "progress: expected True, False or a function"),
        ({"workers": 2}, "workers=2: works through files, .* also give out='NAME.nc'"),
        ({"checkpoint_every": 1}, "checkpoint_every=1: works through files"),
        ({"workers": -1}, "workers: expected a whole number of at least 0, got -1"),
        ({"workers": 2, "scheduler": "x", "out": "r.nc"}, "those of the scheduler x; give one"),
    ],
)
def test_a_bad_argument_is_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    for scenario in (SMALL, otafl.load_scenario(SMALL)):
        with pytest.raises(otafl.UserError, match=said):
            otafl.run(scenario, **options)


def test_progress_is_shown_if_wanted(capsys: pytest.CaptureFixture) -> None:
    otafl.run(SMALL)
    assert capsys.readouterr().err == ""
    otafl.run(SMALL, progress=True)
    assert "2/2 rounds" in capsys.readouterr().err
