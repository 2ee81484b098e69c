"""Verification of all files that a run or a sweep has written.

Each file is compared with its SHA-256 (`otafl.results.checksums`) and read as far as it says what
it is. A result without one is read to its end, since HDF5 has checksums of its chunks.
Nothing that a file names is imported or called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from otafl.core.errors import DamagedError, UserError
from otafl.core.files import HDF5, list_own
from otafl.core.inputs import open_regular
from otafl.core.suggestions import format_count, format_near_file
from otafl.results import checksums
from otafl.results import models as trained
from otafl.results.checksums import ChecksumError, format_reason
from otafl.results.files import PARTS, SWEEP_FILE, list_parts, open_part, read_part, read_sweep_file
from otafl.scenario.yaml_source import parse
from otafl.sweeping.store import MODELS, RUNNING, UNFINISHED, Store

ZIP = b"PK\x03\x04"
"""The first bytes of an archive of `torch.save`."""

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
    with open_regular(path) as file:
        begin = file.read(len(HDF5))
    if begin.startswith(ZIP):
        yield _verify_one(path, _check_tensors, alone=True)
    elif begin == HDF5:
        finding = _verify_one(path, _check_result, alone=True)
        yield finding
        files = trained.list_model_files(path)
        lacks = not (finding.fault or files or path.parent.name == PARTS)
        if lacks and _saves_models(_read_scenario(path)):
            missing = "missing: the models of this result"
            yield Finding(trained.get_models_folder(path), missing)
        yield from (_verify_one(one, _check_tensors) for one in files)
    elif path.suffix in (".nc", ".pt"):
        yield Finding(path, "damaged: it does not begin as such a file does")
    else:
        raise UserError(f"{path}: is no file of otafl; {HINT}")


def _verify_folder(folder: Path) -> Iterator[Finding]:
    store, parts, plan = Store(folder), list_parts(folder), folder / SWEEP_FILE
    scenario = ""
    if plan.exists() or parts:
        finding = _verify_one(plan, lambda path: read_sweep_file(path.parent))
        scenario = "" if finding.fault else read_sweep_file(folder).attributes["scenario"]
        yield finding
    elif not list(folder.glob("*.pt")):
        raise UserError(f"{folder}: is no folder of a sweep, and holds no models; {HINT}")
    if store.sizes_path.exists():
        yield _verify_one(store.sizes_path, lambda _: store.read_sizes())
    yield from (_verify_one(path, _check_result) for path in parts)
    models = [*sorted(folder.glob("*.pt")), *trained.list_model_files(folder)]
    yield from (_verify_one(path, _check_tensors) for path in models)
    # those of an `otafl run` may lie beside its result already
    if _saves_models(scenario) and folder.suffix != UNFINISHED:
        for path in (store.get_path(MODELS, part.stem) for part in parts):
            if path not in models:
                yield Finding(path, "missing: the models of a finished stack")
    for path in list_own(folder / RUNNING, ".pt"):
        yield _verify_one(path, _check_tensors)


def _verify_one(path: Path, check: Callable[[Path], object], alone: bool = False) -> Finding:
    """Return the finding about a file, by what a check of its content raises.

    Raises UserError, if the file is verified alone, where it is not otafl's.
    """
    try:
        has_checksum = checksums.check(path)
        check(path)
    except (DamagedError, ChecksumError, OSError) as error:
        return Finding(path, f"damaged: {format_reason(error)}")
    except UserError as error:
        if alone:
            raise
        return Finding(path, str(error).removeprefix(f"{path}: ").partition(";")[0])
    except Exception:  # what unpickling of foreign bytes may raise
        return Finding(path, "damaged: it holds nothing of otafl that can be read")
    return Finding(path, note="" if has_checksum or path.suffix == ".json" else NO_CHECKSUM)


def _check_result(path: Path) -> None:
    if checksums.find_digest(path) is None:
        read_part(path)
    open_part(path).close()


def _check_tensors(path: Path) -> None:
    """Check an archive of `torch.save`, of models or of a checkpoint."""
    kept = torch.load(path, "cpu", weights_only=True, mmap=True)
    if "otafl_models" in kept:
        trained.read(path)
    elif not {"recorder", "rounds"} <= kept.keys():
        raise UserError(f"{path}: holds no models or checkpoint of otafl; {HINT}")


def _read_scenario(path: Path) -> str:
    """Return the scenario (YAML) of a sound result."""
    with open_part(path) as part:
        return str(part.attrs["scenario"])


def _saves_models(scenario: str) -> bool:
    """Return whether a scenario (YAML) keeps models, read as plain data."""
    try:
        return parse(scenario).data["output"]["save_models"] is True
    except (UserError, KeyError, TypeError):
        return False
