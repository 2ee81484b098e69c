"""`otafl.run` and `otafl.sweep` take what the commands take."""

from __future__ import annotations

from typing import Any

import pytest

import otafl

SMALL = {
    "name": "small",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [4]},
    "devices": {"count": 2},
    "training": {"rounds": 2, "local_steps": 1},
}


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
