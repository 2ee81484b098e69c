"""Which files use a setting."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "settings_users.py"))

SETTINGS = {
    ("training.rounds", "number of rounds"): set[str](),
    ("power.threshold", "weakest channel"): {"tci", "truncated"},
    ("power.threshold", "largest error"): {"other"},
}


def read_keys(language: str, text: str) -> list[tuple[str, set[str]]]:
    data = SCRIPT["iterate_data"](language, text)
    return [pair for one in data for pair in SCRIPT["iterate_keys"](one)]


def test_keys_of_a_program_and_of_yaml_in_it() -> None:
    found = read_keys("py", "f({'power': {'threshold': 1}}, a='training: {rounds: 2}')")
    assert {".power.threshold", ".training.rounds"} <= {key for key, _ in found}
    assert (".threshold", {"tci", "x"}) in read_keys("py", "Tci.Settings('x', threshold=1)")


def test_users_are_of_the_components_that_stand_beside(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "studies" / "one.yaml").write_text("power: {name: other, threshold: 1}")
    (tmp_path / "tests" / "test_one.py").write_text("x = {'power.threshold': 1}, 'tci'")
    assert SCRIPT["find_users"](SETTINGS, tmp_path) == {
        ("power.threshold", "largest error"): {"study": ["studies/one.yaml"]},
        ("power.threshold", "weakest channel"): {"test": ["tests/test_one.py"]},
        ("training.rounds", "number of rounds"): {},
    }
