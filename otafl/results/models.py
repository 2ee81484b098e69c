"""Files of the models that a stack of trials has at its end.

They are `<sweep>/models/<stack>.pt` for `parts/<stack>.nc`, and `<name>.models/<stack>.pt` for
`<name>.nc`.

Kept are the views that a method is tested by ("global", "local", "personal", ..., see
`otafl.core.contracts.View`), as they lie: factors as factors, and once what all devices of a trial
share. A model that is tested fine-tuned (Per-FedAvg's personal one) is kept fine-tuned, on the
minibatches of the last round; batch normalisation comes with the statistics that it is tested on. A
trial that stopped, ended or diverged before the last round has the models that it had then.

Models and checkpoints are plain data, which run nothing of what a file holds: tensors, NumPy
arrays, numbers, texts, None, and dicts, lists, tuples and sets of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from otafl.core import checksums
from otafl.core.contracts import Tensors
from otafl.core.errors import DamagedError, UserError
from otafl.core.files import list_own, write_atomically
from otafl.models.modules import Recipe
from otafl.results.origins import check_format, get_versions
from otafl.scenario import Scenario, compute_scenario_hash, describe_scenario

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
    save_archive(head | trained.state_dict(), path)


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


def renumber(path: Path, numbers: Mapping[int, int], scenario: Scenario) -> None:
    """Make a file one of a sweep that has grown.

    numbers: of a point, before -> now. A file that is of the grown sweep already stays. Raises what
    `read` and `write` do.
    """
    models, head = read(path)
    if head["scenario_hash"] != compute_scenario_hash(scenario):
        rows = [(numbers[point], trial) for point, trial in models.rows]
        write(replace(models, rows=rows), path, scenario)


def get_models_folder(result: Path) -> Path:
    """Return the folder of the models of a result file or of a sweep."""
    return result / "models" if result.is_dir() else result.with_name(f"{result.stem}.models")


def list_model_files(result: Path) -> list[Path]:
    """List the files of models beside a result, which may be none."""
    return list_own(get_models_folder(result), ".pt")


_ARRAY = "numpy array"


def save_plain(tree: Any, path: Path) -> None:
    """Write plain data; the file is whole or not there.

    Raises WriteError where the disk does not allow it, TypeError for what is not plain.
    """
    save_archive(_to_tensors(tree), path)


def save_archive(tree: Any, path: Path) -> None:
    """Write what `torch.save` takes, with a checksum; the file is whole or not there.

    Raises WriteError where the disk does not allow it.
    """
    with write_atomically(path, replaces=True) as temporary:
        try:
            torch.save(tree, temporary)
        except RuntimeError as error:  # of its C++, on a full disk say
            raise OSError(str(error).partition("\n")[0]) from error
        checksums.forget(path)
    checksums.write(path)


def load_plain(path: Path) -> Any:
    """Read plain data, tensors to the device that they were on.

    Raises OSError if the file cannot be read; ChecksumError where its checksum differs; torch's and
    pickle's errors where it holds anything else, which is not run.
    """
    if path.is_symlink():
        raise checksums.ChecksumError("it is a link, and otafl makes none")
    checksums.check(path)
    return _from_tensors(torch.load(path, weights_only=True))


def _to_tensors(tree: Any) -> Any:
    """Return arrays as tensors, so that the file names no code."""
    if isinstance(tree, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(tree).copy()), "shape": tree.shape}
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, dict):
        return {key: _to_tensors(value) for key, value in tree.items()}
    if type(tree) in (list, tuple, set):
        return type(tree)(_to_tensors(value) for value in tree)
    if isinstance(tree, torch.Size):
        return tuple(tree)
    if tree is None or isinstance(tree, torch.Tensor | str | bool | int | float | complex):
        return tree
    raise TypeError(f"a {type(tree).__name__} is no plain data")


def _from_tensors(tree: Any) -> Any:
    if isinstance(tree, dict):
        if _ARRAY in tree:
            return tree[_ARRAY].numpy().reshape(tree["shape"])
        return {key: _from_tensors(value) for key, value in tree.items()}
    if type(tree) in (list, tuple, set):
        return type(tree)(_from_tensors(value) for value in tree)
    return tree
