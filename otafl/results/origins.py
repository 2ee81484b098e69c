"""Origins of the points of a result: versions of programs, user-defined modules, and inputs.

The attribute `origins` of a result is JSON, a list of

    {"points": "0-5,8", "versions": {program: version}, "sources": {file: hash},
     "inputs": {"otafl": hash of its source, "data": checksum of the samples, file: hash},
     "commit": "3f2a... with changes"}

with an entry for each that differs. Points are counted as in the sweep, the last axis fastest. Only
a checkout of otafl's repository has a commit.
"""

from __future__ import annotations

import functools
import importlib.metadata
import operator
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter

from otafl.core.checksums import format_reason
from otafl.core.errors import UserError
from otafl.user_code.sources import Sources

WITH_CHANGES = " with changes"
"""Mark of a commit whose files were edited."""
GIT_TIMEOUT_S = 10.0
"""Seconds that git gets on a slow file system."""


@functools.cache
def get_versions() -> dict[str, str]:
    """Return the versions of otafl and of the packages that its numbers depend on."""
    names = {"sionna": ("sionna-no-rt", "sionna")}
    packages = ("otafl", "torch", "sionna", "numpy", "xarray")
    return {name: _find_version(*names.get(name, (name,))) for name in packages}


@functools.cache
def find_commit() -> str | None:
    """Find the commit of otafl's source, where it runs from a checkout of its git repository.

    Git is called once in a program, and not for an installed package.

    Returns
    -------
    str or None
        The commit in hexadecimal, and ` with changes` after it if a file of the checkout differs
        from the commit. None for an installed package, without git, and where git refuses.
    """
    checkout = Path(__file__).parents[2]
    # a hook of git sets GIT_DIR, and a monitor of files is a program
    places = f"--git-dir={checkout / '.git'}", f"--work-tree={checkout}"
    options = "--no-optional-locks", "-c", "core.fsmonitor=false", *places
    describe = "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={WITH_CHANGES}"
    try:
        if '\nname = "otafl"\n' not in (checkout / "pyproject.toml").read_text("utf-8"):
            return None
        found = subprocess.run(
            ["git", *options, *describe],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _find_version(*names: str) -> str:
    """Return the version of the first distribution of these names that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


def check_format(path: Path, written: Any, known: int, version: Any) -> None:
    """Raise UserError for a file of a later format than is known; `version` of otafl wrote it."""
    if isinstance(written, int | np.integer) and written > known:
        raise UserError(
            f"{path}: was written by otafl {version} in a format that this one "
            f"({get_versions()['otafl']}) does not know; update otafl to read it"
        )


def get_device_name(device: str) -> str:
    """Name the processor that computed, as its maker calls it."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


ATTRIBUTE = "origins"

MAX_POINTS = 10**6
"""Numbers of points are below it."""

_RANGES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", re.ASCII)
_COMMIT = f"[0-9a-f]{{40,64}}({WITH_CHANGES})?"


def _parse_points(given: Any) -> frozenset[int]:
    """Return the numbers of `0-5,8`, which someone else may have written."""
    if isinstance(given, frozenset):
        return given
    if not isinstance(given, str) or not _RANGES.fullmatch(given):
        raise ValueError("points are numbers and ranges, such as 0-5,8")
    spans = [[int(number) for number in one.split("-")] for one in given.split(",")]
    if sum(max(0, span[-1] - span[0] + 1) for span in spans) > MAX_POINTS:
        raise ValueError(f"there are at most {MAX_POINTS:,} points")
    return frozenset(point for span in spans for point in range(span[0], span[-1] + 1))


def _format_points(points: Iterable[int]) -> str:
    """Return numbers as `0-5,8`."""
    numbers = sorted(points)
    starts = [b for a, b in pairwise([-2, *numbers]) if b != a + 1]
    ends = [a for a, b in pairwise([*numbers, -2]) if b != a + 1]
    pairs = zip(starts, ends, strict=True)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


class Origin(BaseModel):
    """Origin of some points: the software and inputs that computed them.

    Parameters
    ----------
    points : their numbers in the sweep.
    versions : of programs.
    sources : of user-defined modules; None in files that are older than the attribute.
    inputs : hashes of otafl's own source, of the data set and of files that the scenario names;
        None if they were not recorded.
    commit : as of `find_commit`. It names the source for people, and the hash in
        `inputs` compares it, so that two commits with the same source are no difference.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    points: Annotated[
        frozenset[int], BeforeValidator(_parse_points), PlainSerializer(_format_points)
    ]
    versions: dict[str, str]
    sources: dict[str, str] | None = None
    inputs: dict[str, str] | None = None
    commit: Annotated[str, Field(pattern=f"^{_COMMIT}(, {_COMMIT})*$")] | None = None

    def with_points(self, points: Iterable[int]) -> Origin:
        """Return the origin of other points."""
        return self.model_copy(update={"points": frozenset(points)})


_ORIGINS = TypeAdapter(list[Origin])

_INPUTS = {"otafl": "otafl's source", "data": "samples of data"}
"""Names of `Origin.inputs` in words; others are files."""


def make_origin(
    points: Iterable[int], sources: Sources, inputs: Mapping[str, str] | None = None
) -> Origin:
    """Return the origin of points that this program computes."""
    return Origin(
        points=frozenset(points),
        versions=get_versions(),
        sources=sources,
        inputs=None if inputs is None else dict(inputs),
        commit=find_commit(),
    )


def to_json(origins: Sequence[Origin]) -> str:
    """Return the attribute."""
    return _ORIGINS.dump_json(list(origins), exclude_none=True).decode()


def read(attributes: Mapping[str, Any]) -> list[Origin]:
    """Return the origins in a file's attributes; none if there are none.

    Raises UserError where the attribute is not as `to_json` writes it.
    """
    try:
        return _ORIGINS.validate_json(attributes.get(ATTRIBUTE, "[]"))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"attribute {ATTRIBUTE}: expected the versions and sources of points "
            f"({format_reason(error)})"
        ) from error


def join_origins(several: Iterable[Sequence[Origin]]) -> list[Origin]:
    """Return the origins of several files together.

    A point whose trials were computed at two times has two, if these differ.
    """
    out: list[Origin] = []
    for one in (origin for origins in several for origin in origins):
        alike = (i for i, known in enumerate(out) if known.with_points(one.points) == one)
        place = next(alike, None)
        if place is None:
            out.append(one)
        else:
            out[place] = one.with_points(out[place].points | one.points)
    return out


def renumber_points(origins: Sequence[Origin], numbers: Mapping[int, int]) -> list[Origin]:
    """Return origins whose points have these numbers now, without points that have none."""
    moved = [one.with_points(numbers[p] for p in one.points if p in numbers) for one in origins]
    return [one for one in moved if one.points]


def build_table(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the software and inputs of a result, a row for each file, the data and otafl's source.

    A row has the hash, and if there are several, the points of each. The commit of otafl has a row
    if a checkout computed points.
    """
    rows: dict[str, dict[str, set[int]]] = {}
    for one in read(attributes):
        known = {} if one.commit is None else {"otafl's commit": one.commit}
        known |= one.sources or {}
        known |= {_INPUTS.get(name, name): of for name, of in (one.inputs or {}).items()}
        for name, of in known.items():
            rows.setdefault(name, {}).setdefault(of, set()).update(one.points)
    out = []
    for name, by in rows.items():
        several = (f"{of} (points {_format_points(points)})" for of, points in by.items())
        out.append((name, next(iter(by)) if len(by) == 1 else ", ".join(several)))
    return out


def list_environment(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what a result was made from, a row each.

    Versions, the commit of otafl, hashes of code and data, processor, seed and the scenario's hash.
    """
    rows = [(name, str(attributes.get(f"{name}_version", "not stored"))) for name in get_versions()]
    rows += build_table(attributes)
    others = {"processor": "device_name", "seed": "seed", "scenario hash": "scenario_hash"}
    return rows + [(name, str(attributes[key])) for name, key in others.items()]


def format_mixed_versions(attributes: Mapping[str, Any]) -> str:
    """Describe which points of a result each version computed; empty if there is only one."""
    points: dict[tuple[tuple[str, str], ...], frozenset[int]] = {}
    for one in read(attributes):
        key = tuple(one.versions.items())
        points[key] = points.get(key, frozenset()) | one.points
    if len(points) < 2:
        return ""
    alike = functools.reduce(operator.and_, (set(key) for key in points))
    texts = (
        f"points {_format_points(own)} by "
        + ", ".join(f"{name} {of}" for name, of in key if (name, of) not in alike)
        for key, own in points.items()
    )
    return "computed by several versions: " + "; ".join(texts)
