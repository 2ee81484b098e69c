"""Search for the finished stacks of a folder, and removal of those that are outdated.

Stacks that were computed by another state of user-defined modules are computed again. Those of
other versions of the programs are kept and named; the attribute `origins` of the result says which
they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from otafl import data
from otafl.core.suggestions import format_count
from otafl.results.environment import get_versions
from otafl.results.origins import Origin
from otafl.results.packing import take_out
from otafl.scenario import Scenario, hash_named_files
from otafl.sweeping import locks
from otafl.sweeping.folder import Finished, Folder, list_outdated
from otafl.sweeping.plan_file import merge_sources, replace_sources
from otafl.sweeping.planning import Stack
from otafl.user_code.sources import Sources, hash_otafl, list_changed


def find_finished(
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
    models : whether a stack whose models are not in the folder is to be computed again.
    """
    with locks.hold_lock(home.get_lock_path("pack")):
        aside = home.set_aside_damaged()
    for path, why in aside.items():
        tell(f"{why}; kept as {path.name}, its stacks are computed again")

    def find_lost_models(number: int, one: Finished) -> set[str]:
        return set() if home.get_models_path(number).exists() else {"models"}

    if models and (lost := _take_out(home, scenario, stacks, find_lost_models)):
        tell(
            f"{home.path}: the models of {format_count(len(lost), 'finished stack')} are not "
            f"there; {'it is' if len(lost) == 1 else 'they are'} computed again"
        )
    now = merge_sources(sources)
    before = replace_sources(home.path, now)
    gone = remove_outdated(home, scenario, stacks, sources)
    for stack, own in zip(stacks, sources, strict=True):
        other = [file for file in list_changed(before, now) if file in own] if before else []
        if other and home.forget(stack.number):
            gone.setdefault(stack.number, set()).update(other)
    if gone:
        files = sorted(set[str]().union(*gone.values()))
        tell(
            f"{home.path}: {', '.join(files)} {'has' if len(files) == 1 else 'have'} changed since "
            f"{len(gone)} of {format_count(len(stacks), 'stack')} {_choose_verb(len(gone))} "
            f"computed or begun; {'it begins' if len(gone) == 1 else 'they begin'} again"
        )
    held = home.find_finished(scenario).values()
    there = {n: one.get_origin(stacks[n]) for one in held for n in one.stacks if n < len(stacks)}
    for versions_, count in _count_other_versions(there.values()).items():
        tell(
            f"{home.path}: {count} of {format_count(len(stacks), 'stack')} {_choose_verb(count)} "
            f"computed by {versions_}; kept, as the attribute origins of the result says; "
            "--restart computes everything again"
        )
    return set(there)


def remove_outdated(
    home: Folder, scenario: Scenario, stacks: Sequence[Stack], sources: Sequence[Sources]
) -> dict[int, set[str]]:
    """Remove the stacks that an earlier state of user-defined modules computed from a folder.

    Return which files have changed for each.
    """

    def find_changed_files(number: int, one: Finished) -> set[str]:
        return set(list_outdated(one.get_origin(stacks[number]), sources[number]))

    return _take_out(home, scenario, stacks, find_changed_files)


def find_differences(
    origin: Origin,
    own: Sources,
    inputs: Mapping[str, str],
    programs: Mapping[str, str] | None = None,
) -> set[str]:
    """Return the names of programs, user-defined files and inputs that have changed since.

    If an older file does not record them, only the user-defined files are named.

    Parameters
    ----------
    own : user-defined modules, as they are now.
    inputs : as of `hash_inputs`, now.
    programs : the versions now; those of this program if not given.
    """
    now = get_versions() if programs is None else programs
    before = (origin.inputs or {}).items()
    return {
        *(name for name, version in origin.versions.items() if now.get(name) != version),
        *list_outdated(origin, own),
        *(name for name, known in before if inputs.get(name, known) != known),
    }


def hash_inputs(scenario: Scenario) -> dict[str, str]:
    """Return hashes of what a stack's numbers depend on beside versions and own modules."""
    found = {"otafl": hash_otafl(), "data": data.compute_fingerprint(scenario.data)}
    return found | hash_named_files(scenario)


def _take_out(
    home: Folder,
    scenario: Scenario,
    stacks: Sequence[Stack],
    why: Callable[[int, Finished], set[str]],
) -> dict[int, set[str]]:
    """Take the stacks out of a folder for which there is a reason, and return the reasons."""
    gone: dict[int, set[str]] = {}
    for path, one in home.find_finished(scenario).items():
        found = {number: why(number, one) for number in one.stacks if number < len(stacks)}
        out = {number: reasons for number, reasons in found.items() if reasons}
        if out:
            points = {point.index for number in out for point in stacks[number].points}
            with locks.hold_lock(home.get_lock_path("pack")):
                take_out(home.path, path, set(out), points)
            gone |= out
    return gone


def _count_other_versions(origins: Iterable[Origin]) -> Counter[str]:
    """Count the origins of other versions than there are here, by what they are."""
    here, out = get_versions(), Counter[str]()
    for one in origins:
        other = {name: one.versions.get(name, "not known") for name in here}
        differ = [f"{n} {other[n]} (here {here[n]})" for n in here if other[n] != here[n]]
        if differ:
            out[", ".join(differ)] += 1
    return out


def _choose_verb(count: int) -> str:
    return "was" if count == 1 else "were"
