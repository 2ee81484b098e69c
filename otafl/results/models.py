"""Files of the models that a stack of trials has at its end.

They are `<sweep>/models/NNNNN.pt` for `parts/NNNNN.nc`, and `<name>.models/NNNNN.pt` for
`<name>.nc`.

Kept are the views that a method is tested by ("global", "local", "personal", ..., see
`otafl.core.contracts.View`), as they lie: factors as factors, and once what all devices of a trial
share. A model that is tested fine-tuned (Per-FedAvg's personal one) is kept fine-tuned, on the
minibatches of the last round; batch normalisation comes with the statistics that it is tested on. A
trial that stopped, ended or diverged before the last round has the models that it had then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from otafl.core.contracts import Tensors
from otafl.core.errors import DamagedError, UserError
from otafl.core.files import list_numbered
from otafl.models.recipes import Recipe
from otafl.results import checksums, plain_data
from otafl.results.environment import check_format, get_versions
from otafl.scenario import Scenario, describe_scenario

FORMAT = 1

_UNREADABLE = "it holds no models of otafl that can be read"

Row = tuple[int, int]
"""Point of the sweep, trial number."""


@dataclass(frozen=True)
class TrainedView:
    """Models of one view.

    blocks: name -> [rows, K, *shape], or [rows, 1, *shape] of a trial's model and of what its
    devices share. devices: K, or None for a trial's model. Of a trial with several servers
    they are all servers' devices, or the servers themselves where each has one model.
    """

    recipe: Recipe
    blocks: Tensors
    devices: int | None

    def get_params(self, row: int, device: int) -> Tensors:
        """Return the parameters [*shape] of one model."""
        return {n: b[row, device if b.shape[1] > 1 else 0] for n, b in self.blocks.items()}


@dataclass(frozen=True)
class TrainedModels:
    """Models of points and trials, in the order of `rows`, which all views share."""

    rows: list[Row]
    views: dict[str, TrainedView]

    def state_dict(self) -> dict[str, Any]:
        """Return plain tensors and plain data, "rows" and "views"."""
        views = {name: dict(vars(view)) for name, view in self.views.items()}
        return {"rows": self.rows, "views": views}

    @staticmethod
    def from_state_dict(rows: Any, views: Any) -> TrainedModels:
        """Return the object from the plain data that `state_dict` returned.

        Raises TypeError, ValueError or AttributeError for anything else.
        """
        own = {name: TrainedView(**view) for name, view in views.items()}
        return TrainedModels([(point, trial) for point, trial in rows], own)


def join(several: Sequence[TrainedModels]) -> TrainedModels:
    """Join several batches of points and trials of one stack."""
    first = several[0]
    if len(several) == 1:
        return first
    views = {}
    for name, view in first.views.items():
        each = [one.views[name] for one in several]
        blocks = {}
        for block in view.blocks:
            parts = [one.blocks[block] for one in each]
            most = max(part.shape[1] for part in parts)
            whole = [part.expand(-1, most, *part.shape[2:]) for part in parts]
            blocks[block] = torch.cat(whole)
        views[name] = replace(view, blocks=blocks)
    return TrainedModels([row for one in several for row in one.rows], views)


def write(trained: TrainedModels, path: Path, scenario: Scenario) -> None:
    """Write plain tensors and plain data, which `torch.load` reads with `weights_only`.

    The file is whole or absent. scenario: the whole sweep's. Raises WriteError if the disk does not
    allow it.
    """
    head = {
        "otafl_models": FORMAT,
        "otafl_version": get_versions()["otafl"],
        **describe_scenario(scenario),
    }
    plain_data.save_archive(head | trained.state_dict(), path)


def read(path: Path) -> tuple[TrainedModels, dict[str, Any]]:
    """Return what `write` wrote, and the head of the file, for `scenario.same`.

    The file is compared with its checksum; blocks are then read from disk where they are used.
    DamagedError for a file that is damaged or not otafl's, UserError for one of a later format.
    """
    try:
        checksums.check(path)
        kept: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
        check_format(path, kept["otafl_models"], FORMAT, kept["otafl_version"])
        return TrainedModels.from_state_dict(kept.pop("rows"), kept.pop("views")), kept
    except UserError:
        raise
    except Exception as error:  # whatever unpickling of damaged bytes may raise
        raise DamagedError(
            f"{path}: is damaged or holds no models of otafl; `otafl verify` looks at all files of "
            "its run and says how to compute it again",
            str(error) if isinstance(error, checksums.ChecksumError) else _UNREADABLE,
        ) from error


def get_models_folder(result: Path) -> Path:
    """Return the folder of the models of a result file or of a sweep."""
    return result / "models" if result.is_dir() else result.with_name(f"{result.stem}.models")


def list_model_files(result: Path) -> list[Path]:
    """List the files of models beside a result, which may be none."""
    return list_numbered(get_models_folder(result), ".pt")
