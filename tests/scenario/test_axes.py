"""The axes of a sweep and its points."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import make_scenario

from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.channels.awgn import Awgn
from otafl.power.inversion import TruncatedChannelInversion as Tci
from otafl.scenario import (
    build_axes,
    expand,
)

pytestmark = pytest.mark.exact


def test_no_sweep_is_one_point() -> None:
    one = make_scenario(power="ci")
    (point,) = expand(one)
    assert (point.index, point.coords, point.scenario) == (0, {}, one)
    assert build_axes(one) == {}


def test_points_are_in_c_order_over_the_axes() -> None:
    swept = make_scenario(sweep={"channel.snr_db": [0, 10], "power.name": ["gbma", "ci", "tci"]})
    points = expand(swept)
    assert [point.index for point in points] == list(range(6))
    assert [point.coords for point in points][:4] == [
        {"snr_db": 0, "power": "gbma"},
        {"snr_db": 0, "power": "ci"},
        {"snr_db": 0, "power": "tci"},
        {"snr_db": 10, "power": "gbma"},
    ]
    assert points[5].scenario.channel.snr_db == 10
    assert points[5].scenario.power == Tci()
    assert all(point.scenario.sweep == {} for point in points)


def test_axes_have_units_and_names() -> None:
    swept = make_scenario(
        sweep={
            "channel.snr_db": [0, 10],
            "channel.bandwidth_hz": [1e6],
            "devices.count": [10, 50],
            "devices.deadline_s": [1.5],
            "power": ["gbma", {"name": "tci", "threshold": 0.2}],
            "data.partition": ["iid", {"name": "dirichlet", "alpha": 0.1}],
            "algorithm.learning_rate": [0.1],
            "devices.participants": [5],
        }
    )
    found = build_axes(swept)
    assert list(found) == [
        "snr_db",
        "bandwidth_hz",
        "device_count",
        "deadline_s",
        "power",
        "partition",
        "learning_rate",
        "devices_participants",
    ]
    found = {name: coordinates[name] for name, coordinates in found.items()}
    assert [one.units for one in found.values()] == ["dB", "Hz", "1", "s", "", "", "1", "1"]
    assert found["snr_db"].long_name == "normalised SNR"
    assert found["device_count"].long_name == "devices in the population"
    assert found["power"].long_name == "power policy"
    assert found["power"].values == ("gbma", "tci(threshold=0.2)")
    assert found["partition"].values == ("iid", "dirichlet(alpha=0.1)")


def test_other_axes_set_the_keys_of_a_swept_choice() -> None:
    for name in ("power", "power.name"):
        swept = make_scenario(
            power={"name": "tci", "threshold": 0.7},
            sweep={"power.threshold": [0.1, 0.3], name: ["tci"]},
        )
        assert [point.scenario.power for point in expand(swept)] == [
            Tci(threshold=0.1),
            Tci(threshold=0.3),
        ]
    swept = make_scenario(channel={"snr_db": 7}, sweep={"channel": ["awgn"], "channel.snr_db": [3]})
    assert expand(swept)[0].scenario.channel == Awgn.Settings(snr_db=3)


@pytest.mark.parametrize(
    ("key", "section", "names"),
    [
        ("data", {"validation": 0.25, "partition": {"name": "shards"}}, ["digits", "mnist"]),
        ("model", {"hidden": [7]}, ["mlp", "my:Net"]),
    ],
)
def test_a_swept_name_keeps_the_other_keys_of_its_section(
    key: str, section: dict[str, Any], names: list[str]
) -> None:
    tree: Any = {key: {"name": names[0], **section}}
    axis = {f"{key}.name": names}
    joint = {"zip": [{f"{key}.name": name, "seed": seed} for seed, name in enumerate(names)]}
    for swept in (axis, joint):
        for point, name in zip(expand(make_scenario(**tree, sweep=swept)), names, strict=True):
            given = getattr(point.scenario, key).model_dump(exclude_unset=True, mode="json")
            assert given == {"name": name, **section}
    assert build_axes(make_scenario(**tree, sweep=axis)) == build_axes(make_scenario(sweep=axis))


def test_dims_that_collide_are_named_after_their_sections() -> None:
    swept = make_scenario(
        model={"name": "my:Net"},
        sweep={"model.threshold": [1, 2], "power.threshold": [0.1, 0.2], "power.name": ["tci"]},
    )
    assert list(build_axes(swept)) == ["model_threshold", "power_threshold", "power"]
    assert expand(swept)[3].coords == {
        "model_threshold": 2,
        "power_threshold": 0.2,
        "power": "tci",
    }


def test_zip_advances_its_keys_together() -> None:
    swept = make_scenario(
        sweep={
            "seed": [3, 4],
            "zip": [
                {"devices.count": 10, "algorithm.name": "fedavg"},
                {"devices.count": 20, "algorithm.name": {"name": "fedrlr", "rank": 2}},
            ],
        }
    )
    points = expand(swept)
    assert [point.coords for point in points] == [
        {"seed": 3, "device_count": 10, "algorithm": "fedavg"},
        {"seed": 3, "device_count": 20, "algorithm": "fedrlr(rank=2)"},
        {"seed": 4, "device_count": 10, "algorithm": "fedavg"},
        {"seed": 4, "device_count": 20, "algorithm": "fedrlr(rank=2)"},
    ]
    assert points[3].scenario.algorithm == FedRLR.Settings(rank=2)
    found = build_axes(swept)
    assert list(found) == ["seed", "zip"]
    assert list(found["zip"]) == ["zip", "device_count", "algorithm"]
    assert found["zip"]["zip"].values == (0, 1)
    assert found["zip"]["device_count"].values == (10, 20)


def test_own_parts_have_short_names_where_these_are_unique() -> None:
    """Not where two modules have one of that name, or otafl has."""

    def labels(*values: Any) -> tuple[Any, ...]:
        return build_axes(make_scenario(sweep={"power": list(values)}))["power"]["power"].values

    assert labels("tci", "own:mine", {"name": "own:mine", "a": 1}) == ("tci", "mine", "mine(a=1)")
    assert labels("one:mine", "two:mine") == ("one:mine", "two:mine")
    assert labels("own:tci", "own:other") == ("own:tci", "other")


def test_keys_of_the_users_own_component_can_be_swept() -> None:
    swept = make_scenario(model={"name": "my:Net", "width": 1}, sweep={"model.width": [2, 3]})
    assert [point.scenario.model.options["width"] for point in expand(swept)] == [2, 3]
    swept = make_scenario(sweep={"model.name": ["my:Net"], "model.depth": [2, 3]})
    assert [point.scenario.model.options["depth"] for point in expand(swept)] == [2, 3]
