"""The laws of `otafl validate` hold. Each is run once with the quick samples, but for those that
take long even so; a slow test runs all of them with all samples."""

from __future__ import annotations

import pytest

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.validation import checks, report, suite
from otafl.validation.bench import Bench

LAWS = {law.name: law for law in suite.list_laws()}

LONG = {
    "channel: antenna covariance",
    "channel: mean power",
    "power: K counts the transmitters",
    "power: NMSE follows from h, p, c, eta",
    "power: error given the channel",
    "power: power within its budget",
    "regression: noise floor",
    "regression: stationary risk",
    "topology cells: interference",
    "transport digital: LDPC at capacity",
    "transport digital: power of truncation",
    "transport fsk_majority_vote: wrong votes",
}
"""Laws of more than half a second even with the quick samples, which only the slow test runs."""

pytestmark = pytest.mark.law


@pytest.mark.parametrize("name", sorted(LAWS.keys() - LONG))
def test_a_law_holds(name: str) -> None:
    (outcome,) = suite.run(Bench("cpu", quick=True), [LAWS[name]])
    assert [row for row in report.build_rows([outcome]) if not row["pass"]] == []
    assert outcome.checks


@pytest.mark.slow(seconds=60)
def test_all_laws_hold_with_all_samples() -> None:
    outcomes = suite.run(Bench("cpu"), list(LAWS.values()))
    assert [row for row in report.build_rows(outcomes) if not row["pass"]] == []
    assert 0 < sum(len(outcome.checks) for outcome in outcomes) <= checks.MOST_CHECKS


def test_every_policy_is_checked() -> None:
    """The law of budgets holds, and has a case of each policy that is registered."""
    checks = list(LAWS["power: power within its budget"].run(Bench("cpu", quick=True)))
    assert [check for check in checks if not check.is_passed] == []
    found = {check.case.partition(",")[0] for check in checks}
    assert found == set(registry.list_names("power"))


def test_unknown_laws() -> None:
    with pytest.raises(UserError, match="nonsense"):
        suite.list_laws("nonsense")
