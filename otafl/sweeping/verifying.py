"""Verification of all files that a run or a sweep has written.

Each file is compared with its checksum (`otafl.results.checksums`) and read as far as it says what
it is. Older files have none: of results every chunk is read, whose checksums HDF5 compares, of
archives of `torch.save` the CRC-32 of their contents. Nothing that a file names is imported or
called, and what is held in memory at a time is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from otafl.core.errors import DamagedError, UserError
from otafl.core.files import HDF5
from otafl.core.inputs import open_regular, read_text
from otafl.core.suggestions import format_count
from otafl.results import checksums
from otafl.results import models as trained
from otafl.results.checksums import ChecksumError
from otafl.results.files import PACKS, PARTS, list_finished_files, open_part
from otafl.results.packing import read_stack_numbers
from otafl.scenario import is_same
from otafl.scenario.yaml_source import parse
from otafl.sweeping.folder import EARLIER, RUNNING, Folder
from otafl.sweeping.plan_file import MAX_BYTES, SHA256, check_scenario, read_tree
from otafl.user_code import loading

MAX_CHUNK_BYTES = 2**30
"""Of a chunk of values, which is read at a time."""

NO_CHECKSUM = "without a SHA-256, as older files are"

HINT = "give a result (.nc), its models (.pt), or the folder of an `otafl sweep`"


class Kind(Enum):
    """What a file is to the command that wrote it."""

    RESULT = "result"
    MODELS = "models"
    PART = "part"
    RUNNING = "running"
    PLAN = "plan"


@dataclass(frozen=True)
class Finding:
    """State of a file.

    fault: what is wrong with it, empty for a sound one. note: of a sound one.
    """

    path: Path
    kind: Kind
    fault: str = ""
    note: str = ""

    def describe(self, folder: Path) -> str:
        """Return the line of the file, with its path from the folder on."""
        name = self.path.relative_to(folder) if self.path.is_relative_to(folder) else self.path
        return f"{name}: {self.fault or 'sound'}{f' ({self.note})' if self.note else ''}"


def verify(source: Path) -> Iterator[Finding]:
    """Verify a file of results, of models or of a running stack, or the folder of a sweep.

    Raises UserError for what is no file or folder of otafl.
    """
    if source.is_dir():
        yield from _verify_folder(source)
    elif not source.exists():
        raise UserError(f"{source}: no such file or folder; {HINT}")
    elif not source.is_file():
        raise UserError(f"{source}: is no regular file; {HINT}")
    else:
        yield from _verify_file(source)


def advise(findings: list[Finding], source: Path) -> str:
    """Return a sentence that says what to do."""
    wrong = [one for one in findings if one.fault]
    if not wrong:
        return f"{source}: sound, {format_count(len(findings), 'file')}"
    kinds = {one.kind for one in wrong}
    head = f"{source}: {len(wrong)} of {format_count(len(findings), 'file')} damaged or missing; "
    if Kind.PLAN in kinds:
        return head + "the command that wrote it, with --restart, computes everything again"
    if Kind.RESULT in kinds or not source.is_dir():
        return head + "the command that wrote it computes it again"
    models = [one.path for one in wrong if one.kind is Kind.MODELS and one.path.exists()]
    first = ""
    if models:
        names = ", ".join(str(path.relative_to(source)) for path in models)
        first = f"delete {names}; then "
    return f"{head}{first}the command that wrote it computes again what is damaged or missing"


def _verify_file(path: Path) -> Iterator[Finding]:
    with open_regular(path) as file:
        begin = file.read(len(HDF5))
    if begin.startswith(checksums.ZIP):
        yield _verify_tensors(path, alone=True)
        return
    if begin != HDF5:
        if path.suffix in (".nc", ".pt"):
            yield Finding(path, Kind.RESULT, "damaged: it does not begin as such a file does")
            return
        raise UserError(f"{path}: is no file of otafl; {HINT}")
    kind = Kind.PART if path.parent.name in (PARTS, PACKS) else Kind.RESULT
    finding, attributes = _verify_result(path, kind, alone=True)
    yield finding
    files = list(trained.list_model_files(path))
    if kind is Kind.RESULT and not files and _saves_models(str(attributes.get("scenario", ""))):
        yield Finding(
            trained.get_models_folder(path), Kind.RESULT, "missing: the models of this result"
        )
    yield from map(_verify_tensors, files)


def _verify_folder(folder: Path) -> Iterator[Finding]:
    home = Folder(folder)
    results = list_finished_files(folder)
    if not home.plan.exists() and not results:
        files = sorted(folder.glob("*.pt"))
        if not files:
            raise UserError(f"{folder}: is no folder of a sweep, and holds no models; {HINT}")
        yield from map(_verify_tensors, files)
        return
    about: dict[str, Any] = {}
    yield from _verify_plan(home, about)
    stacks: set[int] = set()
    for path in results:
        finding, attributes = _verify_result(path, Kind.PART)
        if attributes:
            about = about or attributes
            try:
                stacks |= read_stack_numbers(path, attributes)
                if not _is_same(attributes, about):
                    finding = replace(finding, fault="is of another scenario", note="")
            except (TypeError, ValueError):
                finding = replace(finding, fault="damaged: an attribute is not otafl's", note="")
        yield finding
    if home.interrupted_path.exists():
        yield _verify_result(home.interrupted_path, Kind.PART)[0]
    for path in sorted((folder / EARLIER).glob("*.nc")):
        yield _verify_result(path, Kind.PART)[0]
    yield from map(_verify_tensors, sorted((folder / EARLIER).glob("*.pt")))
    models = list(trained.list_model_files(folder))
    yield from map(_verify_tensors, models)
    if _saves_models(str(about.get("scenario", ""))) and not _is_of_run(folder):
        for path in map(home.get_models_path, sorted(stacks)):
            if path not in models:
                yield Finding(path, Kind.MODELS, "missing: the models of a finished stack")
    yield from map(_verify_tensors, sorted((folder / RUNNING).glob("*.pt")))


def _verify_plan(home: Folder, description: dict[str, Any]) -> Iterator[Finding]:
    """Verify the plan and its scenario, and add to `description` which scenario that is."""
    plan: dict[str, Any] = {}
    try:
        plan = read_tree(home.plan)
        yield Finding(home.plan, Kind.PLAN, note="" if SHA256 in plan else NO_CHECKSUM)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        yield Finding(home.plan, Kind.PLAN, f"damaged: {_format_reason(error)}")
    try:
        check_scenario(plan, home.scenario_path)
        parse(text := read_text(home.scenario_path, MAX_BYTES))
        if "scenario_hash" in plan:
            description |= {"scenario_hash": plan["scenario_hash"], "scenario": text}
        yield Finding(home.scenario_path, Kind.PLAN)
    except (OSError, ValueError, UserError) as error:
        yield Finding(home.scenario_path, Kind.PLAN, f"damaged: {_format_reason(error)}")


def _verify_result(path: Path, kind: Kind, alone: bool = False) -> tuple[Finding, dict[str, Any]]:
    """Return what was found of a result, and its attributes; none of a damaged one.

    Raises UserError, if it is verified alone, for a file that is not otafl's.
    """
    try:
        has_checksum = checksums.check(path)
        with open_part(path) as part:
            attributes = dict(part.attrs)
        if not has_checksum:
            _read_chunks(path)
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, kind, f"damaged: {_format_reason(error)}"), {}
    except UserError as error:
        if alone:
            raise
        return Finding(path, kind, str(error).removeprefix(f"{path}: ").partition(";")[0]), {}
    return Finding(path, kind, note="" if has_checksum else NO_CHECKSUM), attributes


def _read_chunks(path: Path) -> None:
    """Read every chunk of numbers in a NetCDF-4 file, which HDF5 compares with its checksum.

    Raises ChecksumError where one differs or is larger than otafl's.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            for values in file.values():
                if not isinstance(values, h5py.Dataset) or values.dtype.kind not in "fiu":
                    continue
                shape = values.chunks or values.shape
                if values.dtype.itemsize * math.prod(shape) > MAX_CHUNK_BYTES:
                    raise ChecksumError(f"a chunk of {values.name} is larger than otafl writes")
                count = values.id.get_num_chunks() if values.chunks else 0
                for start in (values.id.get_chunk_info(i).chunk_offset for i in range(count)):
                    values[tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))]
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ChecksumError(f"a chunk cannot be read ({type(error).__name__})") from error


def _verify_tensors(path: Path, alone: bool = False) -> Finding:
    """Return what was found of an archive of `torch.save`: models, a checkpoint or a record.

    Raises UserError, if it is verified alone, for a file that is not otafl's.
    """
    kind = Kind.RUNNING if path.parent.name == RUNNING else Kind.MODELS
    try:
        has_checksum = checksums.check(path)
        kept = torch.load(path, "cpu", weights_only=True, mmap=True)
        if "otafl_models" in kept:
            trained.read(path)
        elif not ({"recorder", "journal"} <= kept.keys() or {"identity", "record"} <= kept.keys()):
            raise UserError(f"{path}: holds no models, checkpoint or record of otafl; {HINT}")
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, kind, f"damaged: {_format_reason(error)}")
    except Exception as error:  # what unpickling of foreign bytes may raise
        if alone and isinstance(error, UserError):
            raise
        return Finding(path, kind, "damaged: it holds nothing of otafl that can be read")
    return Finding(path, kind, note="" if has_checksum else NO_CHECKSUM)


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two parts are of one scenario; code that they name is not imported."""
    with loading.guard_imports("the folder", False):
        return is_same(one, other)


def _saves_models(scenario: str) -> bool:
    """Return whether a scenario (YAML) keeps models, read as plain data."""
    try:
        return parse(scenario).data["output"]["save_models"] is True
    except (UserError, KeyError, TypeError):
        return False


def _is_of_run(folder: Path) -> bool:
    """Return whether it is the folder of an `otafl run`, whose models may lie beside the result."""
    return folder.suffix == ".unfinished"


def _format_reason(error: Exception) -> str:
    """Return in words what an error found."""
    if isinstance(error, DamagedError):
        return error.reason
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
