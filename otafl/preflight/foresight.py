"""Say what would stop a run, as far as it can be known before its data are read.

A point is put together as a run does, with made-up samples of the shape that the data set declares,
and its first round is gone through with few devices and little work: what a run would refuse, it
refuses here, with the same sentence. Unknown until a run are

- what the samples hold: missing or damaged files, labels and users, and how they fall to devices
  by draws; of a data set of the user's own also its shape, and so whether model and method fit it;
- what only this machine has: a GPU, memory, a disk;
- what happens later: a function of the user's that fails in some round, devices that never come.

The first of these, and all functions of the user's in a round, `otafl.preflight.dry_run` looks at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.data import made_up
from otafl.data.dealt import Dealt
from otafl.data.shares import cut, known_counts
from otafl.engine.assembly import Parts, assemble
from otafl.engine.engine import Engine
from otafl.running.memory import check_channel
from otafl.scenario import Point, Scenario, stack_key
from otafl.scenario.keys import custom_sections
from otafl.scenario.sections import DevicesSettings, EngineSettings, OutputSettings
from otafl.user_code import blame
from otafl.user_code.own import OwnPart

MOST_DEVICES = 1000
"""A point is put together for no more."""

FEW = 2
"""Participants, and samples in a minibatch, of the round that is gone through."""

ROWS_ALONE = ("data", "model", "algorithm")
"""Sections whose parts see who takes part, and not the population."""

MANY = 10**12
"""Samples in a data set of which nobody knows how many there are."""

Foresee = Callable[[Scenario], list[Problem]]


def foresight() -> Foresee:
    """Return `foreseen`, which looks once at points that could share a stack."""
    known: dict[str, list[Problem]] = {}

    def look(scenario: Scenario) -> list[Problem]:
        key = stack_key(scenario)
        if key not in known:
            known[key] = foreseen(scenario)
        return known[key]

    return look


def foreseen(scenario: Scenario) -> list[Problem]:
    """Return what would stop a run of a point: all that is wrong with the modules that it names
    and with how its data are dealt out; of the rest, where that is sound, the first."""
    named = [attempted(section.found) for _, section in custom_sections(scenario)]
    named.append(attempted(scenario.track.ready))
    named.append(attempted(lambda: check_channel(scenario)))
    found = [one for one in (*named, attempted(lambda: _deal(scenario))) if one is not None]
    if not found and made_up.declared(scenario.data):
        first = attempted(lambda: _rehearse(scenario))
        found += [] if first is None else [first]
    return found


def attempted(attempt: Callable[[], Any]) -> Problem | None:
    """Return the UserError of an attempt, or what the user's own code raises, with the key that it
    begins with. Any other error, which made-up samples may be the cause of, says nothing of a
    run."""
    try:
        attempt()
    except Exception as raised:
        error = blame.told(raised)
        return problem_of(error) if isinstance(error, UserError) else None
    return None


def problem_of(error: UserError) -> Problem:
    """Return an error as the problem of the key that its sentence begins with."""
    key = re.match(r"[a-z_]+(\.[a-z_]+)*(?=[:\[])", str(error))
    return Problem(str(error), tuple(key[0].split(".")) if key else (), _OTHERS)


_OTHERS = tuple((name,) for name in ("data", "model", "algorithm", "codec", "transport", "devices"))


def _deal(scenario: Scenario) -> None:
    """Split the samples that a data set declares, and deal them out, by their counts alone."""
    source = scenario.data
    if isinstance(source, OwnPart):
        return
    counts = known_counts(source, scenario.devices.count, MANY)
    counts.check()
    source.partition.fits(counts)
    if source.test == "per_device" and counts.samples < MANY:
        sizes = np.array(source.partition.sizes(counts), np.int64)
        cut(Dealt(np.arange(sizes.sum()), sizes), source.test_share, source.validation)


def _rehearse(scenario: Scenario) -> None:
    """Put a point together, and go through the first round of a small copy of it."""
    neutral = {"engine": EngineSettings(device="cpu", dtype=scenario.engine.dtype)}
    count = min(scenario.devices.count, MOST_DEVICES)
    devices = scenario.devices.model_copy(update={"count": count})
    _assembled(scenario.model_copy(update=neutral | {"devices": devices}))
    less = {"local_steps": 1, "batch_size": min(scenario.training.batch_size, FEW)}
    own = [path for path, section in custom_sections(scenario) if section.decides]
    if all(path[0] in ROWS_ALONE for path in own):
        count = min(count, FEW)  # the user's own may ask for those that there are
    small = {
        "devices": DevicesSettings(count=count, participants=min(count, FEW)),
        "training": scenario.training.model_copy(update=less | {"duration_s": None}),
        "faults": type(scenario.faults)(),
        "topology": registry.settings("topology", "star")(),
        "output": OutputSettings(),
    }
    Engine(_assembled(scenario.model_copy(update=neutral | small))).round(0)


def _assembled(scenario: Scenario) -> Parts:
    return assemble([Point(0, {}, scenario)], [0], made_up.build)
