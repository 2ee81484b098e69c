"""What the points of a result were computed by."""

from __future__ import annotations

import pytest

from otafl.results import origins
from otafl.results.origins import Origin

pytestmark = pytest.mark.exact

OLD, NEW = {"otafl": "0.1", "torch": "2.12"}, {"otafl": "0.1", "torch": "2.13"}


def made(points: set[int], of: dict[str, str] = NEW, file: str = "") -> Origin:
    return Origin(points=frozenset(points), versions=of, sources={"own.py": file} if file else {})


def attributes(*several: Origin) -> dict[str, str]:
    return {origins.ATTRIBUTE: origins.to_json(several)}


def test_it_is_read_as_it_was_written() -> None:
    for points in ({0}, {0, 1, 2, 5, 7, 8}, {3, 11}):
        several = [made(points, file="a1"), made({100}, OLD)]
        assert origins.read(attributes(*several)) == several


def test_points_are_ranges() -> None:
    assert '"points":"0-2,5,7-8"' in origins.to_json([made({0, 1, 2, 5, 7, 8})])


def test_files_are_joined_by_what_computed_them() -> None:
    """A point whose trials were computed at two times has both."""
    first, second = [made({0, 1})], [made({1, 2}), made({0, 3}, OLD)]
    assert origins.join_origins([first, second]) == [made({0, 1, 2}), made({0, 3}, OLD)]
    assert origins.join_origins([first, first]) == first


def test_points_get_the_numbers_of_a_grown_sweep() -> None:
    both = [made({0, 1}), made({2}, OLD)]
    assert origins.renumber_points(both, {0: 5, 1: 0}) == [made({0, 5})]


def test_several_versions_are_told() -> None:
    assert origins.format_mixed_versions({}) == ""
    assert origins.format_mixed_versions(attributes(made({0, 1}), made({2}, file="a"))) == ""
    told = origins.format_mixed_versions(
        attributes(made({0, 1}), made({2}, file="a"), made({3}, OLD))
    )
    assert told == (
        "computed by several versions: points 0-2 by torch 2.13; points 3 by torch 2.12"
    )


def test_code_and_data_of_a_result() -> None:
    """Own files by name, otafl's source and the samples in words."""
    own, inputs = {"own.py": "a", "gone.py": "c"}, {"otafl": "1", "data": "2"}
    one = Origin(points=frozenset({0}), versions=NEW, sources=own, inputs=inputs)
    inputs = {"otafl": "1", "data": "3", "x.csv": "4"}
    other = made({0}, OLD, "b").model_copy(update={"inputs": inputs})
    assert origins.read(attributes(one, other)) == [one, other]
    both = attributes(one, made({1, 2}, file="b"))
    assert origins.build_table(both) == [
        ("own.py", "a (points 0), b (points 1-2)"),
        ("gone.py", "c"),
        ("otafl's source", "1"),
        ("samples of data", "2"),
    ]
    assert origins.build_table({}) == []


def test_a_commit_names_the_source() -> None:
    first, second = "a" * 40, f"{'b' * 40} with changes"
    one, other = (made({0}).model_copy(update={"commit": one}) for one in (first, second))
    assert origins.read(attributes(one)) == [one]
    assert '"commit"' not in origins.to_json([made({0})])
    assert origins.build_table(attributes(one)) == [("otafl's commit", first)]
    assert origins.join_origins([[one], [other]]) == [one, other]


def test_all_that_a_result_was_made_from() -> None:
    one = made({0}).model_copy(update={"commit": "a" * 40, "inputs": {"otafl": "1"}})
    about = {"device_name": "a processor", "seed": 3, "scenario_hash": "5", "torch_version": "2"}
    rows = dict(origins.list_environment(attributes(one) | about))
    assert rows["torch"] == "2"
    assert rows["otafl"] == "not stored"
    assert rows["otafl's commit"] == "a" * 40
    assert (rows["processor"], rows["seed"], rows["scenario hash"]) == ("a processor", "3", "5")
