"""The mutations beside the laws: each makes the laws fail that it names, and no other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otafl.laws import mutations, privacy, suite
from otafl.laws.bench import Bench
from otafl.laws.checks import Law

LAWS = {law.name: law for law in suite.list_laws()}
MUTATIONS = {f"{one.family}{one.name}": one for one in suite.list_mutations()}
NEEDS_A_PACKAGE = {"privacy: sampled devices"} if privacy.list_left_out() else set()

MOST_TOGETHER = 8
"""Largest number of mutations that are put in together, for the laws that are to hold."""


def group_mutations() -> dict[str, list[mutations.Mutation]]:
    """Groups of a family's mutations that are in different places."""
    groups: dict[str, list[mutations.Mutation]] = {}
    for one in MUTATIONS.values():
        for number in itertools.count(1):
            group = groups.setdefault(f"{one.family}{number}", [])
            places = [other.replacement.path for other in group]
            if len(group) < MOST_TOGETHER and one.replacement.path not in places:
                group.append(one)
                break
    return groups


GROUPS = group_mutations()


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


@contextmanager
def mutate(mistakes: Sequence[mutations.Mutation]) -> Iterator[None]:
    """Put mistakes into the code. One in tensor operations has no effect where their compiled twin
    runs, so that is left out."""
    with pytest.MonkeyPatch.context() as patch:
        for one in mistakes:
            owner, name = one.find()
            if hasattr(owner, "get_kernel"):
                patch.setattr(owner, "get_kernel", lambda device: None)
            patch.setattr(owner, name, one.replacement.make(getattr(owner, name)))
        suite.clear_caches()
        try:
            yield
        finally:
            suite.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_its_laws_fail(mutation: mutations.Mutation) -> None:
    """Of the laws that it is tried on; `test_suite.py` sees that all hold without it."""
    names = mutation.failing_laws - NEEDS_A_PACKAGE
    with mutate([mutation]):
        passed = find_passed([LAWS[name] for name in names], Bench("cpu", mutation.quick))
    assert not passed


def test_a_mistake_is_found_among_others() -> None:
    group, law = GROUPS["channel awgn: 1"], LAWS["channel awgn: no fading"]
    assert len(group) == 2
    (wrong,) = [one for one in group if law.name in one.failing_laws]
    assert fail(group, [law]) == [(wrong.name, law.name)]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_other_laws_hold(group: list[mutations.Mutation]) -> None:
    """All mistakes of a group that are not to make a law fail are put in together. Those with which
    it fails are halved, until it holds or fails with a single one."""
    together: dict[tuple[mutations.Mutation, ...], list[Law]] = {}
    for law in LAWS.values():
        if law.name.startswith(group[0].family):
            without = tuple(one for one in group if law.name not in one.failing_laws)
            together.setdefault(without, []).append(law)
    together.pop((), None)
    failing = [pair for mistakes in together for pair in fail(mistakes, together[mistakes])]
    assert failing == []


def fail(mistakes: Sequence[mutations.Mutation], tried: Sequence[Law]) -> list[tuple[str, str]]:
    """Single mistakes with laws that fail, of those that are tried with all of them."""
    with mutate(mistakes):
        passed = find_passed(tried, Bench("cpu", quick=True))
    left = [law for law in tried if law.name not in passed]
    if len(mistakes) == 1 or not left:
        return [(mistakes[0].name, law.name) for law in left]
    middle = len(mistakes) // 2
    return fail(mistakes[:middle], left) + fail(mistakes[middle:], left)


def find_passed(tried: Sequence[Law], bench: Bench) -> set[str]:
    """Names of the laws that hold."""
    return {law.name for law in tried if is_passed(law, bench)}


def is_passed(law: Law, bench: Bench) -> bool:
    """`suite.Outcome.is_passed`, without the checks behind the first that fails."""
    has_checks = False
    for check in law.run(bench):
        has_checks = True
        if not check.is_passed:
            return False
    return has_checks
