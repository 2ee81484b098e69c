"""`sweep.json` in the folder of a sweep: which points it has, under their names.

Someone else may have written it, so it is read with limits, and nothing that it names is imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from otafl.core.errors import DamagedError, UserError
from otafl.core.files import write_atomically
from otafl.core.inputs import MIB, read_text
from otafl.results import checksums
from otafl.results.foreign import format_reason

FILE = "sweep.json"
MAX_BYTES = 64 * MIB
"""Largest file that is read."""


class SweepFile(BaseModel):
    """The sweep that a folder is of.

    attributes: of its result that say which scenario it has. names: of its points, in the sweep's
    order. trials: their number. sources: files of user-defined code, with their hashes. versions:
    of the programs that computed there last.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    attributes: dict[str, str]
    names: list[Annotated[str, Field(pattern="^[0-9a-f]{20}$")]]
    trials: PositiveInt
    sources: dict[str, str]
    versions: dict[str, str]

    def contains(self, other: SweepFile) -> bool:
        """Return whether another sweep has no points and trials but those of this one."""
        return set(other.names) <= set(self.names) and other.trials <= self.trials


def read(folder: Path) -> SweepFile:
    """Read the file of a folder.

    Raises DamagedError where it is damaged, UserError where there is none.
    """
    path = folder / FILE
    if not path.exists():
        raise make_empty_error(folder)
    try:
        checksums.check(path)
        return SweepFile.model_validate_json(read_text(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        reason = format_reason(error)
        raise DamagedError(
            f"{path}: is damaged or no file of a sweep ({reason}); begin again with --restart, or "
            "give another place with --out",
            reason,
        ) from error


def make_empty_error(folder: Path) -> UserError:
    """Return the error of a folder without finished parts."""
    return UserError(
        f"{folder}: no finished parts (parts/*.nc) in this folder; give a result file or "
        "the folder of an `otafl sweep` of which at least one part is finished"
    )


def write(folder: Path, sweep: SweepFile) -> None:
    """Write the file of a folder. Raises WriteError where the disk does not allow it."""
    path = folder / FILE
    with write_atomically(path, replaces=True) as temporary:
        temporary.write_text(json.dumps(sweep.model_dump()), encoding="utf-8")
        checksums.forget(path)
    checksums.write(path)
