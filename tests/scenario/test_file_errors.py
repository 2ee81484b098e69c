"""What is said of a file that is no scenario, cannot be read, or holds more than a scenario may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.faults_of import list_file_faults

from otafl.scenario import ScenarioError, load_scenario

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "quickstart.yaml:1:1: is empty; a scenario begins like 'name: my_run'"),
        (
            "- a\n",
            "quickstart.yaml:1:1: is a list; a scenario is a mapping of keys, like 'name: my_run'",
        ),
        (
            "name: x\ndevices:\n  count: 3\n  count: 4\n",
            "quickstart.yaml:4:3: the key 'count' is given twice, first in line 3; keep one",
        ),
        (
            "name: x\nchannel:\n  snr_db:\n",
            "quickstart.yaml:3:3: channel.snr_db: has no value; write null if that is meant",
        ),
        ("name: x\n1: y\n", "quickstart.yaml:2:1: bad YAML: the key '1' is not text; quote it"),
        (
            "name: x\nmodel: [1\n",
            "quickstart.yaml:3:1: bad YAML: while parsing a flow sequence: expected ',' or ']', "
            "but got '<stream end>'",
        ),
        ("name: x\nseed: *a\n", "quickstart.yaml:2:7: bad YAML: found undefined alias 'a'"),
        (
            "name: x\nseed: &a [*a]\n",
            "quickstart.yaml:2:7: bad YAML: an alias that contains itself",
        ),
        (
            "name: x\nseed: !!python/name:os.system\n",
            "quickstart.yaml:2:7: bad YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("name: \x01\n", "quickstart.yaml:1:7: bad YAML: the character U+0001 is not allowed"),
    ],
)
def test_a_file_that_is_no_scenario(tmp_path: Path, text: str, said: str) -> None:
    assert list_file_faults(tmp_path, text) == [said]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no\.yaml: cannot be read \(No such file"):
        load_scenario(tmp_path / "no.yaml")
    with pytest.raises(ScenarioError, match=r"is a folder; give the YAML file of a scenario"):
        load_scenario(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: é\nseed: ü".encode() + b"t\xe9\n")
    with pytest.raises(
        ScenarioError, match=r"latin\.yaml:2:9: is no UTF-8 text \(byte 0xE9\); save it as UTF-8"
    ):
        load_scenario(tmp_path / "latin.yaml")


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"/dev/zero: cannot be read \(is a device, not a"):
        load_scenario("/dev/zero")
    (tmp_path / "large.yaml").write_text("# \n" * 10**6)
    with pytest.raises(
        ScenarioError, match=r"large\.yaml: has more than 1 MB, which no scenario has"
    ):
        load_scenario(tmp_path / "large.yaml")


def _grown(first: str, one: str) -> str:
    """Nine anchors, each of which holds the one before nine times."""
    lines = [f"a{i}: &a{i} {one.format(', '.join([f'*a{i - 1}'] * 9))}" for i in range(1, 10)]
    return "\n".join(["name: x", f"a0: &a0 {first}", *lines])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_grown("[1]", "[{}]"), id="aliases"),
        pytest.param(f"name: x\na: [{'1, ' * 60_000}1]", id="long"),
    ],
)
def test_more_values_than_there_may_be(tmp_path: Path, text: str) -> None:
    (said,) = list_file_faults(tmp_path, text)
    assert re.match(r"quickstart\.yaml:2:\d+: bad YAML: holds more than 50,000 values", said)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("name: x\nseed: " + "[" * 5000 + "]" * 5000, id="brackets"),
        pytest.param(
            "name: x\na0: &a0 [1]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 999)),
            id="aliases",
        ),
    ],
)
def test_nesting_without_end_is_refused(tmp_path: Path, text: str) -> None:
    (said,) = list_file_faults(tmp_path, text)
    assert re.match(r"quickstart\.yaml:2:\d+: bad YAML: is nested more than 40 deep", said)


@pytest.mark.parametrize(("number", "digits"), [("9" * 5000, "5,000"), ("0x" + "f" * 998, "1,000")])
def test_a_whole_number_of_thousands_of_digits(tmp_path: Path, number: str, digits: str) -> None:
    (said,) = list_file_faults(tmp_path, f"name: x\nseed: {number}")
    assert said == (
        f"quickstart.yaml:2:7: bad YAML: the whole number {number[:17]}... has {digits} digits; "
        "must have at most 100"
    )
