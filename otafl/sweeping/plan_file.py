"""The plan of a sweep as a file of its folder, beside a copy of the scenario.

A resumed sweep follows the plan, since float32 results differ in the last bits between stack sizes.
Someone else may have written it, so it is read with limits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from otafl.core.errors import UserError
from otafl.core.files import write_text
from otafl.core.inputs import MIB, read_bytes, read_text
from otafl.scenario import Point, Scenario, describe_scenario, expand, hash_custom_sources, is_same
from otafl.scenario.keys import iterate_custom_sections
from otafl.sweeping.locks import hold_lock
from otafl.sweeping.planning import Batch, Stack, plan
from otafl.user_code import sources
from otafl.user_code.sources import Sources

MAX_BYTES = 64 * MIB
"""Largest plan, and scenario beside it, that is read: someone else may have written them."""

SHA256 = "sha256"
"""The key of a plan's checksum."""


def load_or_create(
    scenario: Scenario,
    folder: Path,
    workers: int = 1,
    begin: Callable[[], None] = lambda: None,
) -> list[Stack]:
    """Return the folder's plan, or a new one that is then stored in it, after `begin` was called.

    Raises UserError if the folder holds another scenario's results, or a damaged plan.
    """
    points = expand(scenario)
    with hold_lock(folder / "locks" / "plan.lock"):
        if (folder / "plan.json").exists():
            return read_plan(scenario, points, folder)
        stacks = plan(points, workers)
        sources = merge_sources(hash_sources_per_stack(stacks))
        said = describe_scenario(scenario)
        _check_own(folder / "scenario.yaml", said["scenario"])
        write_text(folder / "scenario.yaml", said["scenario"])
        begin()
        write_text(folder / "plan.json", format_plan(said, stacks, sources))
    return stacks


def format_plan(
    description: Mapping[str, str], stacks: Sequence[Stack], sources: Sources | None = None
) -> str:
    """Return the text of a plan.

    description: of the scenario, see `describe_scenario`. sources: of all stacks, their present
    state by default.
    """
    return to_json(
        {
            "scenario_hash": description["scenario_hash"],
            "scenario_sha256": _hash_text(description["scenario"]),
            "sources": merge_sources(hash_sources_per_stack(stacks))
            if sources is None
            else sources,
            "stacks": [_to_plain(stack) for stack in stacks],
        }
    )


def hash_sources_per_stack(stacks: Sequence[Stack]) -> list[Sources]:
    """Return the files of user-defined modules that each stack names, with their hashes."""
    known: dict[tuple[str, ...], Sources] = {}
    out = []
    for stack in stacks:
        names = tuple(section.name for _, section in iterate_custom_sections(stack.scenario))
        if names not in known:
            known[names] = hash_custom_sources(stack.scenario)
        out.append(known[names])
    return out


def merge_sources(several: Sequence[Sources]) -> Sources:
    """Return the files of several stacks."""
    return functools.reduce(operator.or_, several, {})


def replace_sources(folder: Path, sources: Sources) -> None:
    """Save the present state of user-defined modules in the plan of a folder."""
    with hold_lock(folder / "locks" / "plan.lock"):
        if read_tree(folder / "plan.json").get("sources", {}) != sources:
            _change(folder / "plan.json", lambda tree: tree.update(sources=sources))


def _check_own(path: Path, text: str) -> None:
    """Raise UserError if another file than a sweep's has the name of its scenario."""
    if path.exists() and not (path.is_file() and read_bytes(path, MAX_BYTES) == text.encode()):
        raise UserError(
            f"{path}: is there already, and a sweep keeps its own there; give another place with "
            "--out"
        )


def replace_batches(folder: Path, stack: Stack, batches: list[Batch] | None = None) -> Stack:
    """Return the stack, in other batches if they are given, and update the folder's plan."""
    changed = stack if batches is None else replace(stack, batches=batches)

    def change(tree: dict[str, Any]) -> None:
        tree["stacks"][stack.number] = _to_plain(changed)

    with hold_lock(folder / "locks" / "plan.lock"):
        _change(folder / "plan.json", change)
    return changed


def _change(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    tree = read_tree(path)
    change(tree)
    write_text(path, to_json(tree))


def to_json(tree: dict[str, Any]) -> str:
    """Return a plan as JSON, with the SHA-256 of the rest of it."""
    return json.dumps({**tree, SHA256: _compute_digest(tree)})


def read_tree(path: Path) -> dict[str, Any]:
    """Read a plan as plain data, and compare it with its SHA-256; older plans have none.

    Raises OSError for a file that cannot be read; ValueError or TypeError for one that is damaged
    or no plan.
    """
    tree: dict[str, Any] = dict(json.loads(read_text(path, MAX_BYTES)))
    if tree.get(SHA256) != _compute_digest(tree):
        raise ValueError("its SHA-256 is not the one that it was written with")
    return tree


def check_scenario(plan: dict[str, Any], path: Path) -> None:
    """Raise ValueError unless the copy of the scenario is the one that a plan was made of."""
    text = read_text(path, MAX_BYTES)
    if "scenario_sha256" in plan and plan["scenario_sha256"] != _hash_text(text):
        raise ValueError("its SHA-256 is not the one that it was written with")


def _compute_digest(tree: dict[str, Any]) -> str:
    """Return the SHA-256 of a plan without that of it."""
    bare = {key: value for key, value in tree.items() if key != SHA256}
    return _hash_text(json.dumps(bare, sort_keys=True))


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_plan(scenario: Scenario, points: list[Point], folder: Path) -> list[Stack]:
    """Return the plan of a folder. Raises UserError if it is damaged or of another scenario."""
    path = folder / "plan.json"
    try:
        tree = read_tree(path)
        kept = {**tree, "scenario": read_text(folder / "scenario.yaml", MAX_BYTES)}
        if not is_same(kept, describe_scenario(scenario)):
            raise UserError(
                f"{folder}: holds the results of another scenario (or of this one before it "
                "was changed); give another place with --out, or throw them away with --restart"
            )
        sources.record(tree.get("sources", {}))
        stacks = []
        for number, stack in enumerate(tree["stacks"]):
            own = [points[i] for i in stack["points"]]
            batches = [Batch(*one) for one in stack["batches"]]
            stacks.append(Stack(number, own, batches, int(stack.get("earlier", 0))))
        _check_whole(stacks, len(points), scenario.trials)
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise UserError(
            f"{path}: is damaged or no plan of otafl; begin again with --restart, or give another "
            "place with --out"
        ) from error
    return stacks


def _check_whole(stacks: Sequence[Stack], points: int, trials: int) -> None:
    """Raise ValueError unless the stacks hold every trial of every point once."""
    if sorted(point.index for stack in stacks for point in stack.points) != list(range(points)):
        raise ValueError("not every point once")
    for stack in stacks:
        every = Counter(
            (point, trial)
            for batch in stack.batches
            for point in batch.points
            for trial in batch.trials
        )
        wanted = len(stack.points) * (trials - stack.earlier)
        if len(every) != wanted or set(every.values()) != {1}:
            raise ValueError("not every trial once")
        first = stack.earlier
        if not all(0 <= p < len(stack.points) and 0 <= first <= t < trials for p, t in every):
            raise ValueError("more trials than there are")


def _to_plain(stack: Stack) -> dict[str, Any]:
    points = [point.index for point in stack.points]
    plain = {"points": points, "batches": stack.batches}
    return plain | ({"earlier": stack.earlier} if stack.earlier else {})
