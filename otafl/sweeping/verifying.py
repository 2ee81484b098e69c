"""Verification of all files that a run or a sweep has written.

Each file is compared with its SHA-256 (`otafl.core.checksums`) and read as far as it says what
it is. A result without one is read to its end, since HDF5 has checksums of its chunks.
Nothing that a file names is imported or called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from otafl.core import checksums
from otafl.core.checksums import ChecksumError, format_reason
from otafl.core.errors import DamagedError, UserError
from otafl.core.files import list_own
from otafl.core.suggestions import format_count, format_near_file
from otafl.results import models as trained
from otafl.results.files import SWEEP_FILE, list_parts, open_part, read_part, read_sweep_file
from otafl.sweeping.store import RUNNING, Store

NO_CHECKSUM = "without a SHA-256"

HINT = "give a result (.nc), its models (.pt), or the folder of an `otafl sweep`"


@dataclass(frozen=True)
class Finding:
    """State of a file.

    fault: what is wrong with it, empty for a sound one. note: of a sound one.
    """

    path: Path
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
    yield from (_verify_folder if source.is_dir() else _verify_file)(source)


def advise(findings: list[Finding], source: Path) -> str:
    """Return a sentence that says what to do."""
    wrong = [one.path for one in findings if one.fault]
    if not wrong:
        return f"{source}: sound, {format_count(len(findings), 'file')}"
    head = f"{source}: {len(wrong)} of {format_count(len(findings), 'file')} damaged or missing; "
    if not source.is_dir():
        return head + "the command that wrote it computes it again"
    kept = [
        str(path.relative_to(source))
        for path in wrong  # what the command does not replace by itself
        if path.exists() and (path.suffix == ".json" or path in trained.list_model_files(source))
    ]
    first = f"delete {', '.join(kept)}; then " if kept else ""
    return f"{head}{first}the command that wrote it computes again what is damaged or missing"


def _verify_file(path: Path) -> Iterator[Finding]:
    if path.suffix not in (".nc", ".pt"):
        raise UserError(f"{path}: is no file of otafl; {HINT}")
    yield _verify_one(path, alone=True)
    yield from map(_verify_one, trained.list_model_files(path))


def _verify_folder(folder: Path) -> Iterator[Finding]:
    store, parts, plan = Store(folder), list_parts(folder), folder / SWEEP_FILE
    models = [*sorted(folder.glob("*.pt")), *trained.list_model_files(folder)]
    files = [plan] if plan.exists() or parts else []
    if not (files or models):
        raise UserError(f"{folder}: is no folder of a sweep, and holds no models; {HINT}")
    if store.sizes_path.exists():
        files.append(store.sizes_path)
    yield from map(_verify_one, [*files, *parts, *models, *list_own(folder / RUNNING, ".pt")])


def _verify_one(path: Path, alone: bool = False) -> Finding:
    """Return the finding about a file.

    Raises UserError, if the file is verified alone, where it is not otafl's.
    """
    try:
        has_checksum = checksums.check(path)
        # read a file as far as it says what it is, and a result without a checksum to its end
        if path.suffix == ".nc":
            part = open_part(path) if has_checksum else read_part(path)
            part.close()
        elif path.name == SWEEP_FILE:
            read_sweep_file(path.parent)
        elif path.suffix == ".json":
            Store(path.parent).read_sizes()
        else:
            kept = torch.load(path, "cpu", weights_only=True, mmap=True)
            if "otafl_models" in kept:
                trained.read(path)
            elif not {"recorder", "rounds"} <= kept.keys():
                raise UserError(f"{path}: holds no models or checkpoint of otafl; {HINT}")
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, f"damaged: {format_reason(error)}")
    except UserError as error:
        if alone:
            raise
        return Finding(path, str(error).removeprefix(f"{path}: ").partition(";")[0])
    except Exception:  # what unpickling of foreign bytes may raise
        return Finding(path, "damaged: it holds nothing of otafl that can be read")
    return Finding(path, note="" if has_checksum or path.suffix == ".json" else NO_CHECKSUM)
