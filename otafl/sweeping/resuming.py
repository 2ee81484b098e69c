"""Find what a folder has finished of a sweep, and take out what it must not be mixed with.

Stacks that were computed by another state of the user's own modules are computed anew. Those of
other versions of the programs are kept and named; the attribute `origins` of the result says which
they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from otafl.core.words import counted
from otafl.results.environment import versions
from otafl.results.origins import Origin
from otafl.results.packing import take_out
from otafl.scenario import Scenario
from otafl.sweeping import locks
from otafl.sweeping.folder import Folder, outdated
from otafl.sweeping.planning import Stack, began_with, together
from otafl.user_code.sources import Sources, changed


def finished(
    home: Folder,
    scenario: Scenario,
    stacks: Sequence[Stack],
    sources: Sequence[Sources],
    tell: Callable[[str], None],
    models: bool = False,
) -> set[int]:
    """Return the numbers of the stacks that need not be computed any more.

    Parameters
    ----------
    sources : of each stack, as they are now.
    tell : called with a sentence where files are damaged, modules have changed, and versions
        differ.
    models : whether a stack whose models are not in the folder is to be computed anew.
    """
    with locks.held(home.lock("pack")):
        aside = home.set_aside_damaged()
    for path, why in aside.items():
        tell(f"{why}; kept as {path.name}, its stacks are computed anew")
    if models and (lost := _remove_without_models(home, scenario, stacks)):
        tell(
            f"{home.path}: the models of {counted(len(lost), 'finished stack')} are not there; "
            f"{'it is' if len(lost) == 1 else 'they are'} computed anew"
        )
    now = together(sources)
    before = began_with(home.path, now)
    gone = remove_outdated(home, scenario, stacks, sources)
    for stack, own in zip(stacks, sources, strict=True):
        other = [file for file in changed(before, now) if file in own] if before else []
        if other and home.forget(stack.number):
            gone.setdefault(stack.number, set()).update(other)
    if gone:
        files = sorted(set[str]().union(*gone.values()))
        tell(
            f"{home.path}: {', '.join(files)} {'has' if len(files) == 1 else 'have'} changed since "
            f"{len(gone)} of {counted(len(stacks), 'stack')} {_was(len(gone))} computed or begun; "
            f"{'it begins' if len(gone) == 1 else 'they begin'} anew"
        )
    held = home.finished(scenario).values()
    there = {n: one.origin(stacks[n]) for one in held for n in one.stacks if n < len(stacks)}
    for versions_, count in _others(there.values()).items():
        tell(
            f"{home.path}: {count} of {counted(len(stacks), 'stack')} {_was(count)} computed by "
            f"{versions_}; kept, as the attribute origins of the result says; --restart computes "
            "everything anew"
        )
    return set(there)


def remove_outdated(
    home: Folder, scenario: Scenario, stacks: Sequence[Stack], sources: Sequence[Sources]
) -> dict[int, set[str]]:
    """Take the stacks out of a folder that other modules of the user's made than there are now, and
    return which files have changed for each."""
    gone: dict[int, set[str]] = {}
    for path, one in home.finished(scenario).items():
        there = [stacks[number] for number in one.stacks if number < len(stacks)]
        old = {s.number: set(outdated(one.origin(s), sources[s.number])) for s in there}
        old = {number: files for number, files in old.items() if files}
        if old:
            points = {point.index for number in old for point in stacks[number].points}
            with locks.held(home.lock("pack")):
                take_out(home.path, path, set(old), points)
            gone |= old
    return gone


def _remove_without_models(home: Folder, scenario: Scenario, stacks: Sequence[Stack]) -> set[int]:
    """Take the stacks out of a folder whose models have been removed, and return their numbers."""
    gone = set[int]()
    for path, one in home.finished(scenario).items():
        there = [number for number in one.stacks if number < len(stacks)]
        lost = {number for number in there if not home.models(number).exists()}
        if lost:
            points = {point.index for number in lost for point in stacks[number].points}
            with locks.held(home.lock("pack")):
                take_out(home.path, path, lost, points)
            gone |= lost
    return gone


def _others(origins: Iterable[Origin]) -> Counter[str]:
    """Count the origins of other versions than there are here, by what they are."""
    here, out = versions(), Counter[str]()
    for one in origins:
        other = {name: one.versions.get(name, "not known") for name in here}
        differ = [f"{n} {other[n]} (here {here[n]})" for n in here if other[n] != here[n]]
        if differ:
            out[", ".join(differ)] += 1
    return out


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
