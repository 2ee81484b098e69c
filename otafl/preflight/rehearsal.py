"""A rehearsal of a run on synthetic samples: what would stop it, before its data are read.

A point is put together as a run does, with synthetic samples of the shape that the data set
declares, and its first round is run with few devices and little work. What a run would refuse, the
rehearsal refuses with the same sentence. Unknown until a run are

- what the samples hold: missing or damaged files, labels and users, and how draws deal them out to
  devices; of a data set of the user's own also its shape, and so whether model and method fit it;
- what only the machine of the run has: a GPU, memory, a disk;
- what happens later: a function of the user's that fails in some round, devices that never come.

The first of these, and all functions of the user's in a round, `otafl.preflight.dry_run` tries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.settings import Settings
from otafl.data import made_up
from otafl.data.dealt import Dealt
from otafl.data.shape import declared_shape
from otafl.data.shares import cut, known_counts
from otafl.engine.assembly import Parts, assemble
from otafl.engine.engine import Engine
from otafl.running.memory import check_channel
from otafl.scenario import Point, Scenario
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

SMALL_REALS = 2**24
"""Most numbers in the models of all devices of a point that is not put together again for its
round."""

MANY = 10**12
"""Samples in a data set of which nobody knows how many there are."""


def rehearse(scenario: Scenario, fits: bool = True) -> list[Problem]:
    """Return what would stop a run of a point: all that is wrong with the modules that it names
    and with how its data are dealt out; of the rest, where that is sound, the first.

    fits: whether this machine has the memory for it; else it is not put together.
    """
    attempts = [section.found for _, section in custom_sections(scenario)]
    attempts += [scenario.track.ready, lambda: check_channel(scenario), lambda: _deal(scenario)]
    found = [problem for one in attempts if (problem := attempted(one)) is not None]
    if fits and not found and declared_shape(scenario.data) is not None:
        first = attempted(lambda: _run_first_round(scenario))
        found += [] if first is None else [first]
    return found


def attempted(attempt: Callable[[], Any]) -> Problem | None:
    """Return the UserError of an attempt, or what the user's own code raises, with the key that it
    begins with. Any other error, which made-up samples may be the cause of, says nothing of a
    run.
    """
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


def _run_first_round(scenario: Scenario) -> None:
    """Put a point together, and run its first round with few participants and little work.

    Devices that may be absent, slow or faulty, other servers and large populations are put together
    as they are, and left out of the round: that is run by a small copy.
    """
    training = scenario.training
    less = {"local_steps": 1, "batch_size": min(training.batch_size, FEW), "duration_s": None}
    neutral = {"engine": EngineSettings(device="cpu", dtype=scenario.engine.dtype)}
    count = min(scenario.devices.count, MOST_DEVICES)
    small = {
        "devices": DevicesSettings(count=count, participants=min(count, FEW)),
        "training": training.model_copy(update=less),
        "faults": type(scenario.faults)(),
        "topology": registry.settings("topology", "star")(),
        "output": OutputSettings(),
    }
    devices = scenario.devices.model_copy(update={"count": count})
    whole = scenario.model_copy(update=neutral | {"devices": devices})
    alike = _is_as_small(whole, small)
    if alike:  # of what is put together, only samples depend on how much work there is
        whole = whole.model_copy(update={"training": small["training"]})
    parts = _assembled(whole)
    if alike and parts.model.size * count <= SMALL_REALS:
        parts = replace(parts, scenario=whole.model_copy(update=small))
    else:
        own = [path for path, section in custom_sections(scenario) if section.decides]
        if all(path[0] in ROWS_ALONE for path in own):  # another part may ask for all devices
            small["devices"] = DevicesSettings(count=min(count, FEW))
        parts = _assembled(scenario.model_copy(update=neutral | small))
    Engine(parts).round(0)


def _is_as_small(scenario: Scenario, small: Mapping[str, Settings]) -> bool:
    """Return whether a small copy differs only in the numbers of participants and of steps."""
    devices = scenario.devices
    plain = DevicesSettings(count=devices.count, participants=devices.participants)
    return devices == plain and all(
        getattr(scenario, section) == small[section] for section in ("faults", "topology")
    )


def _assembled(scenario: Scenario) -> Parts:
    return assemble([Point(0, {}, scenario)], [0], made_up.build)
