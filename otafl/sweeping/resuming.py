"""Search for the finished stacks of a folder.

A folder with stacks that another state of user-defined code computed is refused. Stacks of other
versions of the programs are kept and named; the attribute `origins` of the result says which they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from otafl import data
from otafl.core.errors import UserError
from otafl.core.suggestions import format_count
from otafl.results.environment import get_versions
from otafl.results.origins import Origin
from otafl.results.packing import take_out
from otafl.scenario import Scenario, hash_named_files
from otafl.sweeping import locks
from otafl.sweeping.folder import Finished, Folder, list_outdated
from otafl.sweeping.plan_file import (
    hash_sources_per_stack,
    merge_sources,
    read_tree,
    replace_sources,
)
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
    tell : called with a sentence where files are damaged, and versions differ.
    models : whether a stack whose models are not in the folder is to be computed again.

    Raises UserError as `check_sources`.
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
    check_sources(home, scenario, stacks)
    replace_sources(home.path, merge_sources(sources))
    held = home.find_finished(scenario).values()
    there = {n: one.get_origin(stacks[n]) for one in held for n in one.stacks if n < len(stacks)}
    for versions_, count in _count_other_versions(there.values()).items():
        tell(
            f"{home.path}: {count} of {format_count(len(stacks), 'stack')} {_choose_verb(count)} "
            f"computed by {versions_}; kept, as the attribute origins of the result says; "
            "--restart computes everything again"
        )
    return set(there)


def check_sources(home: Folder, scenario: Scenario, stacks: Sequence[Stack]) -> None:
    """Raise UserError if user-defined code has changed since stacks were computed or begun."""
    now = hash_sources_per_stack(stacks)
    before = read_tree(home.plan).get("sources", {})
    changed = {
        stack.number: {file for file in list_changed(before, own) if file in own}
        for stack, own in zip(stacks, now, strict=True)
        if before and home.list_unfinished(stack.number)
    }
    for one in home.find_finished(scenario).values():
        for number in one.stacks & set(range(len(stacks))):
            outdated = list_outdated(one.get_origin(stacks[number]), now[number])
            changed.setdefault(number, set()).update(outdated)
    count = sum(map(bool, changed.values()))
    if count:
        raise UserError(
            f"{home.path}: {format_changed(set().union(*changed.values()))} since {count} of "
            f"{format_count(len(stacks), 'stack')} {_choose_verb(count)} computed or begun; undo "
            "the change, give another place with --out, or throw them away with --restart "
            "(restart=True)"
        )


def format_changed(names: Iterable[str]) -> str:
    """Return a sentence that says which files and objects of the user have changed."""
    texts = [f"{name} or a value that it uses" if ":" in name else name for name in sorted(names)]
    return f"{', '.join(texts)} {'has' if len(texts) == 1 else 'have'} changed"


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
