"""The mutations beside the laws: each makes the laws fail that it names, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otafl.laws import mutations, privacy, suite
from otafl.laws.bench import Bench
from otafl.laws.checks import Law

MUTATIONS = {f"{one.family}{one.name}": one for one in suite.list_mutations()}
NEEDS_A_PACKAGE = {"privacy: sampled devices"} if privacy.list_left_out() else set()


def statement(law: Law) -> Callable[..., Any]:
    """The function that states a law; laws of several policies or channels share one."""
    return getattr(law.run, "func", law.run)


def test_every_law_has_a_mutation() -> None:
    every = suite.list_laws()
    named = {name for one in MUTATIONS.values() for name in one.failing_laws} - NEEDS_A_PACKAGE
    assert named <= {law.name for law in every}
    noticed = {statement(law) for law in every if law.name in named}
    assert [law.name for law in every if statement(law) not in noticed] == []


def test_laws_have_one_home() -> None:
    """No test beside the laws of `otafl/laws` is marked as one: it would have no mutation."""
    here = Path(__file__).parent
    files = [path for path in here.parent.rglob("test_*.py") if path.parent != here]
    assert len(files) > 300
    assert [path.name for path in files if "mark.law" in path.read_text()] == []


def test_names_of_mutations_differ() -> None:
    assert len(MUTATIONS) == len(suite.list_mutations())


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_what_it_replaces_is_there(mutation: mutations.Mutation) -> None:
    owner, name = mutation.find()
    assert mutation.replacement.make(getattr(owner, name)) is not None


@pytest.mark.parametrize(
    "path", ["otafl.nowhere:Thing", "otafl.power.ci:Gone.check", "otafl.power"]
)
def test_a_path_that_is_gone_is_named(path: str) -> None:
    (one,) = mutations.build_mutations(
        "power ci: ", {"a mistake": ("path loss", mutations.scale_result(path, 2.0))}
    )
    with pytest.raises(LookupError, match=f"'a mistake' .* power ci: path loss: .* {path} "):
        one.find()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_its_laws_fail(mutation: mutations.Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the laws that it is tried on; `test_suite.py` sees that all hold without it. A mistake in
    tensor operations has no effect where their compiled twin runs, so that is left out."""
    owner, name = mutation.find()
    if hasattr(owner, "get_kernel"):
        monkeypatch.setattr(owner, "get_kernel", lambda device: None)
    tried = [law for law in suite.list_laws() if law.name.startswith(mutation.family)]
    monkeypatch.setattr(owner, name, mutation.replacement.make(getattr(owner, name)))
    suite.clear_caches()
    bench = Bench("cpu", mutation.quick)
    try:
        failing = {law.name for law in tried if not is_passed(law, bench)}
    finally:
        monkeypatch.undo()
        suite.clear_caches()
    assert failing == mutation.failing_laws - NEEDS_A_PACKAGE


def is_passed(law: Law, bench: Bench) -> bool:
    """`suite.Outcome.is_passed`, without the checks behind the first that fails."""
    has_checks = False
    for check in law.run(bench):
        has_checks = True
        if not check.is_passed:
            return False
    return has_checks
