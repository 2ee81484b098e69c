"""Verification of all files that a run or a sweep has written.

Each file is compared with its SHA-256 (`otafl.results.checksums`) and read as far as it says what
it is. A result without one is first read to its end by a child, see `otafl.results.foreign`.
Nothing that a file names is imported or called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch

from otafl.core.errors import DamagedError, UserError
from otafl.core.files import HDF5, list_own
from otafl.core.inputs import open_regular
from otafl.core.suggestions import format_count, format_near_file
from otafl.results import checksums
from otafl.results import models as trained
from otafl.results.checksums import ChecksumError
from otafl.results.files import PARTS, SWEEP_FILE, list_parts, open_part, read_sweep_file
from otafl.results.foreign import Read, format_reason, limit_reading
from otafl.scenario.yaml_source import parse
from otafl.sweeping.store import RUNNING, UNFINISHED, Store

ZIP = b"PK\x03\x04"
"""The first bytes of an archive of `torch.save`."""

NO_CHECKSUM = "without a SHA-256"

HINT = "give a result (.nc), its models (.pt), or the folder of an `otafl sweep`"


class FileKind(Enum):
    """What a file is to the command that wrote it."""

    RESULT = "result"
    MODELS = "models"
    PART = "part"
    RUNNING = "running"
    SWEEP = "sweep"
    SIZES = "sizes"


@dataclass(frozen=True)
class Finding:
    """State of a file.

    fault: what is wrong with it, empty for a sound one. note: of a sound one.
    """

    path: Path
    kind: FileKind
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
    if not source.exists():
        near = format_near_file(source, f"*{source.suffix}") or ";"
        raise UserError(f"{source}: no such file or folder{near} {HINT}")
    if not (source.is_dir() or source.is_file()):
        raise UserError(f"{source}: is no regular file; {HINT}")
    with limit_reading() as read:
        yield from (_verify_folder if source.is_dir() else _verify_file)(source, read)


def advise(findings: list[Finding], source: Path) -> str:
    """Return a sentence that says what to do."""
    wrong = [one for one in findings if one.fault]
    if not wrong:
        return f"{source}: sound, {format_count(len(findings), 'file')}"
    kinds = {one.kind for one in wrong}
    head = f"{source}: {len(wrong)} of {format_count(len(findings), 'file')} damaged or missing; "
    if FileKind.SWEEP in kinds:
        return head + "delete the folder; the command that wrote it then computes everything again"
    if FileKind.RESULT in kinds or not source.is_dir():
        return head + "the command that wrote it computes it again"
    own = (FileKind.MODELS, FileKind.SIZES)  # what the command does not replace by itself
    kept = [one.path for one in wrong if one.kind in own and one.path.exists()]
    first = ""
    if kept:
        names = ", ".join(str(path.relative_to(source)) for path in kept)
        first = f"delete {names}; then "
    return f"{head}{first}the command that wrote it computes again what is damaged or missing"


def _verify_file(path: Path, read: Read) -> Iterator[Finding]:
    with open_regular(path) as file:
        begin = file.read(len(HDF5))
    if begin.startswith(ZIP):
        yield _verify_tensors(path, alone=True)
        return
    if begin != HDF5:
        if path.suffix in (".nc", ".pt"):
            yield Finding(path, FileKind.RESULT, "damaged: it does not begin as such a file does")
            return
        raise UserError(f"{path}: is no file of otafl; {HINT}")
    kind = FileKind.PART if path.parent.name == PARTS else FileKind.RESULT
    finding, scenario = _verify_result(path, kind, read, alone=True)
    yield finding
    files = trained.list_model_files(path)
    if kind is FileKind.RESULT and not files and _saves_models(scenario):
        missing = "missing: the models of this result"
        yield Finding(trained.get_models_folder(path), FileKind.RESULT, missing)
    yield from map(_verify_tensors, files)


def _verify_folder(folder: Path, read: Read) -> Iterator[Finding]:
    store, parts = Store(folder), list_parts(folder)
    plan = folder / SWEEP_FILE
    if not plan.exists() and not parts:
        files = sorted(folder.glob("*.pt"))
        if not files:
            raise UserError(f"{folder}: is no folder of a sweep, and holds no models; {HINT}")
        yield from map(_verify_tensors, files)
        return
    attributes: Mapping[str, str] = {}
    try:
        attributes = read_sweep_file(folder).attributes
        yield Finding(plan, FileKind.SWEEP)
    except UserError as error:
        yield Finding(plan, FileKind.SWEEP, f"damaged: {format_reason(error)}")
    if store.sizes_path.exists():
        try:
            store.read_sizes()
            yield Finding(store.sizes_path, FileKind.SIZES)
        except UserError as error:
            yield Finding(store.sizes_path, FileKind.SIZES, f"damaged: {format_reason(error)}")
    for path in parts:
        yield _verify_result(path, FileKind.PART, read)[0]
    models = trained.list_model_files(folder)
    yield from map(_verify_tensors, models)
    # those of an `otafl run` may lie beside its result already
    if _saves_models(attributes.get("scenario", "")) and folder.suffix != UNFINISHED:
        for path in (store.get_models_path(part.stem) for part in parts):
            if path not in models:
                yield Finding(path, FileKind.MODELS, "missing: the models of a finished stack")
    yield from map(_verify_tensors, list_own(folder / RUNNING, ".pt"))


def _verify_result(
    path: Path, kind: FileKind, read: Read, alone: bool = False
) -> tuple[Finding, str]:
    """Return the finding about a result, and its scenario; empty for a damaged one.

    Raises UserError, if it is verified alone, for a file that is not otafl's.
    """
    try:
        has_checksum = checksums.check(path)
        if not has_checksum:
            read(path)
        with open_part(path) as part:
            scenario = str(part.attrs["scenario"])
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, kind, f"damaged: {format_reason(error)}"), ""
    except UserError as error:
        if alone:
            raise
        return Finding(path, kind, str(error).removeprefix(f"{path}: ").partition(";")[0]), ""
    return Finding(path, kind, note="" if has_checksum else NO_CHECKSUM), scenario


def _verify_tensors(path: Path, alone: bool = False) -> Finding:
    """Return the finding about an archive of `torch.save`: models or a checkpoint.

    Raises UserError, if it is verified alone, for a file that is not otafl's.
    """
    kind = FileKind.RUNNING if path.parent.name == RUNNING else FileKind.MODELS
    try:
        has_checksum = checksums.check(path)
        kept = torch.load(path, "cpu", weights_only=True, mmap=True)
        if "otafl_models" in kept:
            trained.read(path)
        elif not {"recorder", "rounds"} <= kept.keys():
            raise UserError(f"{path}: holds no models or checkpoint of otafl; {HINT}")
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, kind, f"damaged: {format_reason(error)}")
    except Exception as error:  # what unpickling of foreign bytes may raise
        if alone and isinstance(error, UserError):
            raise
        return Finding(path, kind, "damaged: it holds nothing of otafl that can be read")
    return Finding(path, kind, note="" if has_checksum else NO_CHECKSUM)


def _saves_models(scenario: str) -> bool:
    """Return whether a scenario (YAML) keeps models, read as plain data."""
    try:
        return parse(scenario).data["output"]["save_models"] is True
    except (UserError, KeyError, TypeError):
        return False
