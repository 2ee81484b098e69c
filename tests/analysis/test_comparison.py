"""`otafl diff`: which settings and which numbers differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from golden.made_results import made, written

from otafl import cli
from otafl.analysis.comparison import Comparison, compare
from otafl.scenario import Point

SNR = {"channel.snr_db": [0, 10, 20], "power.name": ["gbma", "ci"]}


def call(*args: object) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    return int(left.value.code or 0)


def by_settings(point: Point, trial: int, round: int) -> float:
    """A number that depends on the point's settings alone, not on its place."""
    name = point.scenario.power.name
    return float(point.scenario.channel.snr_db + 0.1 * len(name) + 0.01 * trial + 0.001 * round)


def both(tmp_path: Path, a: dict, b: dict, tolerance: float = 0.0) -> Comparison:
    paths = [written(made(**keys), tmp_path / f"{i}.nc") for i, keys in enumerate((a, b))]
    return compare(*paths, tolerance)


def list_changed(found: Comparison) -> list[list]:
    """The rows of the variables that differ."""
    return found.numbers[found.numbers["differ"] > 0].to_numpy().tolist()  # type: ignore[no-any-return]


def test_nothing_differs_but_the_time_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    paths = [written(made(SNR), tmp_path / f"{name}.nc") for name in "ab"]
    assert call("diff", *paths) == 0
    told = capsys.readouterr().out
    assert "no setting differs" in told
    assert "6 points in common" in told
    assert "exactly equal in 3 variables: test_accuracy, tx_energy_j, stop_round" in told
    assert "wall_time_s" not in told
    assert told.endswith("nothing differs\n")


def test_one_number_is_found_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    one = made(SNR)
    two = one.copy(deep=True)
    two["tx_energy_j"].loc[{"snr_db": 10, "power": "ci", "trial": 2, "round": 4, "device": 1}] += 2
    paths = [written(ds, tmp_path / f"{i}.nc") for i, ds in enumerate((one, two))]
    found = compare(*paths)
    at = "snr_db 10, power ci, trial 2, round 4, device 1"
    expected = ["tx_energy_j", 108, 1, 2, pytest.approx(2 / 403), 401, 403, at]
    assert list_changed(found) == [expected]
    assert call("diff", *paths) == 1
    assert at in capsys.readouterr().out
    assert call("diff", *paths, "--tolerance", 0.004) == 1
    assert call("diff", *paths, "--tolerance", 0.005) == 0


def test_points_are_matched_by_their_settings(tmp_path: Path) -> None:
    """In another order: equal where both have a point."""
    other = {"power.name": ["ci", "tci", "gbma"], "channel.snr_db": [20, 0, 5]}
    found = both(
        tmp_path, {"sweep": SNR, "value": by_settings}, {"sweep": other, "value": by_settings}
    )
    assert found.common_points == 4
    assert found.lacking[:2] == [
        "2 of the 6 points are in A alone",
        "5 of the 9 points are in B alone",
    ]
    assert not list_changed(found)
    assert found.settings == {
        "sweep.channel.snr_db": ([0, 10, 20], [20, 0, 5]),
        "sweep.power.name": (["gbma", "ci"], ["ci", "tci", "gbma"]),
    }


def test_what_one_has_alone(tmp_path: Path) -> None:
    a = made(trials=3, seed=1)
    b = made(trials=2, seed=1, training={"rounds": 4, "eval_every": 2, "local_steps": 7})
    b = b.drop_vars("stop_round").isel(round=[0, 1])
    b["test_accuracy"][0, 0] = np.nan
    found = compare(written(a, tmp_path / "a.nc"), written(b, tmp_path / "b.nc"))
    assert found.settings == {"training.local_steps": (1, 7), "trials": (3, 2)}
    assert set(found.about) == {"scenario hash"}
    assert found.lacking == [
        "variables in A alone: stop_round",
        "trial in A alone: 2 (1)",
        "round in A alone: 4 (1)",
    ]
    (changed,) = list_changed(found)
    assert changed[1:5] == [4, 1, np.inf, np.inf]
    assert changed[-1] == "trial 0, round 0"


def test_scenarios_have_settings_alone(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    ds = made(SNR)
    path = written(ds, tmp_path / "r.nc")
    tree = yaml.safe_load(ds.attrs["scenario"])
    (tmp_path / "same.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    assert call("diff", tmp_path / "same.yaml", path) == 0
    assert "a scenario has no numbers" in capsys.readouterr().out
    tree["devices"]["count"] = 7
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    assert call("diff", tmp_path / "same.yaml", tmp_path / "other.yaml") == 1
    told = capsys.readouterr().out
    assert [line.split() for line in told.splitlines() if "devices" in line] == [
        ["devices.count", "2", "7"]
    ]


def test_a_joint_axis_is_matched_by_its_values_and_other_axes_are_not(tmp_path: Path) -> None:
    rows = [{"channel.snr_db": 0, "power": "gbma"}, {"channel.snr_db": 10, "power": "ci"}]
    a, b = ({"sweep": {"zip": zipped}, "value": by_settings} for zipped in (rows, rows[::-1]))
    found = both(tmp_path, a, b)
    assert (found.common_points, found.lacking, list_changed(found)) == (2, [], [])
    found = both(tmp_path, a, {})
    assert found.lacking == ["axes differ (zip in A, none in B), so no numbers are compared"]


def test_points_that_did_not_run_are_no_difference(tmp_path: Path) -> None:
    whole = made(SNR)
    part = whole.where(whole["snr_db"] < 20).assign_coords(
        final_round=whole["final_round"].where(whole["snr_db"] < 20)
    )
    found = compare(written(whole, tmp_path / "a.nc"), written(part, tmp_path / "b.nc"))
    assert found.common_points == 4
    assert found.lacking == ["2 of the 6 points are in A alone"]
    assert not list_changed(found)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a.nc", "a.nc", "--tolerance", "2"], "--tolerance 2: must be at least 0 and below 1"),
        (["a.nc", "bad.yaml"], "bad.yaml"),
    ],
)
def test_bad_input_exits_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    args: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(made(), Path("a.nc"))
    Path("bad.yaml").write_text("power: [")
    assert call("diff", *args) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
