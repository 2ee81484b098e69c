"""The laws of `otafl validate` hold. Each is run once with the quick samples, but for those that
take long even so; the slow tests run all of them with all samples."""

from __future__ import annotations

import re

import pytest

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.laws import checks, report, suite
from otafl.laws.bench import Bench

LAWS = {law.name: law for law in suite.list_laws()}

LONG = {
    "channel tdl-a: gain and phase at any time",
    "codec compressed_sensing: default threshold of recoveries",
    "codec compressed_sensing: phase transition",
    "codec compressed_sensing: state evolution",
    "codec count_sketch: unbiased",
    "codec count_sketch: variance",
    "csi pilots: channel uses",
    "csi pilots: error between pilots",
    "csi statistics: closed forms",
    "power cao_average: average power by SNR",
    "power cao_average: average power with a line of sight",
    "power cao_average: budget over all rounds",
    "power cao_average: error given the channel",
    "power cao_average: less error than a peak budget",
    "power cao_average: multiplier of one device",
    "power cao_average: power within its budget",
    "power lyapunov: drift bound",
    "power lyapunov: error falls as V grows",
    "power lyapunov: error near the optimum",
    "power smcv: scalars as on the formula sheet",
    "privacy: sampled devices",
    "receiver: noise is that of one antenna",
    "regression: fading floor",
    "regression: local steps",
    "regression: noise floor",
    "regression: personal models",
    "regression: precoding",
    "regression: stationary risk",
    "regression: whole models",
    "text: entropy rate",
    "topology cells: gains by the map",
    "topology cells: interference of two tiers",
    "topology cells: places of a server",
    "transport digital: LDPC at capacity",
    "transport digital: power of truncation",
    "transport fsk_majority_vote: wrong votes",
    "transport ofdm: no impairment",
}
"""Laws that take half a second even with the quick samples, which only the slow tests run."""

ALIKE = re.compile(r"channel ((cdl|tdl)-[b-e]|rma|uma): ")
"""Laws of channels that differ from cdl-a, tdl-a and umi in their tables alone: slow as well."""

QUICK = [name for name in LAWS if name not in LONG and not ALIKE.match(name)]

MOST_CHECKS = {
    "power": 600,
    "channel surface": 650,
    "codec regression topology": 310,
    "others": 940,
}
"""First words of the laws of a part of the suite, and the number of checks that it can have."""

pytestmark = pytest.mark.law


@pytest.mark.parametrize("name", QUICK)
def test_a_law_holds(name: str) -> None:
    (outcome,) = suite.run(Bench("cpu", quick=True), [LAWS[name]])
    assert [row for row in report.build_rows([outcome]) if not row["pass"]] == []
    assert outcome.checks


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("part", MOST_CHECKS)
def test_all_laws_hold_with_all_samples(part: str) -> None:
    outcomes = suite.run(Bench("cpu"), [law for law in LAWS.values() if find_part(law) == part])
    assert [row for row in report.build_rows(outcomes) if not row["pass"]] == []
    assert 0 < sum(len(outcome.checks) for outcome in outcomes) <= MOST_CHECKS[part]


def test_parts_have_the_checks_of_the_suite() -> None:
    assert sum(MOST_CHECKS.values()) == checks.MOST_CHECKS


def find_part(law: checks.Law) -> str:
    """The part whose words include the first one of the law's name."""
    word = law.name.split(" ")[0].rstrip(":")
    return next((part for part in MOST_CHECKS if word in part.split()), "others")


def test_long_laws_are_laws() -> None:
    assert set(LAWS) >= LONG


def test_names_of_laws_differ() -> None:
    assert len(LAWS) == len(suite.list_laws())


def test_what_is_registered_is_checked() -> None:
    for policy in registry.list_names("power"):
        for law in ("error given the channel", "power within its budget"):
            assert f"power {policy}: {law}" in LAWS
        given = f"power {policy}: scalars as on the formula sheet" in LAWS
        # whose multipliers, plans or energy left only they know: laws of their own
        assert given or policy in ("cao_average", "budget_paced", "lyapunov", "pre_scaler")
    for channel in registry.list_names("channel"):
        assert f"channel {channel}: mean power" in LAWS or channel == "trace"


def test_three_levels_and_counts() -> None:
    found = LAWS["power gbma: error given the channel"].run(Bench("cpu", quick=True))
    assert [check.case for check in found] == [
        f"K={k}, {snr} dB" for k in (3, 10, 30) for snr in (0, 10, 20)
    ]


def test_unknown_laws() -> None:
    with pytest.raises(UserError, match="nonsense"):
        suite.list_laws("nonsense")
