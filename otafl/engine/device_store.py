"""State of the devices between rounds: one row for each device that has taken part.

All other devices have the initial state, which is stored once. So memory grows with the number of
past participants, not with the population.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Tensors, take_rows
from otafl.core.stateful import Stateful

MAX_COMPARED = 4096
"""Number of devices up to which each is tested separately, if their models take little memory."""

MODELS_CHUNK = 1 << 26
"""Real numbers of devices' models that are evaluated together."""


class DeviceStore(Stateful):
    """Tensors of state of K devices of S trials.

    A device gets rows at its first participation. Once half of the devices would have rows, all get
    them, in the order of trials and devices, so no lookup is needed.

    Parameters
    ----------
    num_trials : int
        Number of trials, S.
    num_devices : int
        Number of devices, K.
    device : torch.device
        Torch device of the cohorts.
    hands_over : bool
        Whether rows of all devices are the tables themselves, and new rows replace them without a
        copy. Only for callers that keep no reference to the rows that they get and give.
    """

    def __init__(
        self,
        num_trials: int,
        num_devices: int,
        device: torch.device,
        hands_over: bool = False,
    ) -> None:
        self._num_trials, self._num_devices, self._hands_over = num_trials, num_devices, hands_over
        self._start: Tensors = {}  # [S, 1, *shape]
        self._table: Tensors = {}  # [capacity, *shape]
        self._num_rows, self._device = num_trials * num_devices, device
        self._row = torch.empty(0, dtype=torch.int64, device=device)  # [S * K], -1 for no row
        self._count = self._capacity = 0

    def add(self, tensors: Tensors) -> None:
        """Add the tensors that are missing, by their initial state: name -> [S, K, *shape].

        [S, 1, *shape] for a tensor that all devices of a trial share.
        """
        if tensors and not len(self._row):
            self._clear_rows()
        for name, block in tensors.items():
            if name in self._start:
                continue
            self._start[name] = block[:, :1].clone()  # the server may write to its tensors
            if name in self._table:  # loaded from a checkpoint
                continue
            self._table[name] = block.new_empty(self._capacity, *block.shape[2:])
            self._begin(name, self._find_allocated())
            if block.shape[1] > 1:
                self._write_all()
                for own, start in zip(self._view_table(name), block, strict=True):
                    own.copy_(start)

    @property
    def num_allocated(self) -> int:
        """The number of devices, of all trials, that have rows."""
        return self._count

    @property
    def num_coordinates(self) -> int:
        """Count the real numbers of one device's state."""
        return sum(math.prod(start.shape[2:]) for start in self._start.values())

    def get_rows(self, cohort: Cohort) -> Tensors:
        """Return the state [n, *shape] of the cohort's rows."""
        if not self._table:
            return {}
        if self._hands_over and cohort.num_rows == self._num_rows:
            self._write_all()
            return dict(self._table)
        rows = self._allocate_rows(cohort)
        return {name: take_rows(table, rows) for name, table in self._table.items()}

    def put(self, cohort: Cohort, state: Tensors) -> None:
        """Store the state [n, *shape] of the cohort's rows."""
        if not self._table:
            return
        if self._hands_over and cohort.num_rows == self._num_rows:
            self._write_all()
            self._table = dict(state)
            return
        rows = self._allocate_rows(cohort)
        for name, values in state.items():
            self._table[name].index_copy_(0, rows, values)

    def get_all(self) -> Tensors:
        """Return the state [S, K, *shape] of all devices."""
        if self._count == self._num_rows:
            return {name: self._view_table(name) for name in self._table}
        return {
            name: table.view(self._num_trials, -1, *table.shape[1:])
            for name, table in self._copy_all().items()
        }

    def get_distinct(self, model_coordinates: int) -> tuple[Tensors, Tensor | None]:
        """Return the state of all devices without repetitions, and the row of each device in it.

        The state is [S, M, *shape], with the initial state first and the states that have left it
        after it. The rows are [S * K] int64, of [S * M]. For few devices with small models the
        result is that of `get_all`, and None.
        """
        cells, num_coordinates = self._num_rows, max(self.num_coordinates, model_coordinates)
        few = cells <= MAX_COMPARED and cells * num_coordinates <= MODELS_CHUNK
        if few or not self._table or self._count == cells:
            return self.get_all(), None
        having = self._find_allocated()
        trial = having // self._num_devices
        counts = torch.bincount(trial, minlength=self._num_trials)
        width = 1 + int(counts.max())
        first = trial * width + 1  # after the start
        at = first + torch.arange(len(having), device=trial.device)
        at = at - (counts.cumsum(0) - counts)[trial]
        whose = torch.arange(cells, device=trial.device) // self._num_devices * width
        whose[having] = at
        blocks = {}
        for name, table in self._table.items():
            start = self._start[name]
            states = start.expand(-1, width, *start.shape[2:]).clone()
            states.flatten(0, 1)[at] = take_rows(table, self._row[having])
            blocks[name] = states
        return blocks, whose

    def state_dict(self) -> dict[str, Any]:
        cells, tables = self._find_allocated(), self._table
        if self._count < self._num_rows:
            tables = {name: take_rows(table, self._row[cells]) for name, table in tables.items()}
        return {"cells": cells, "rows": dict(tables)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        cells = state["cells"].to(self._device)
        self._clear_rows()
        self._row[cells] = torch.arange(len(cells), device=cells.device)
        self._count = self._capacity = len(cells)
        # tables that were handed over keep their strides, on which the last bits depend
        self._table.update(state["rows"])

    def _clear_rows(self) -> None:
        self._row = torch.full((self._num_rows,), -1, device=self._device)

    def _find_allocated(self) -> Tensor:
        """Return the devices that have rows, as rows of [S * K]."""
        return (self._row >= 0).nonzero().squeeze(1)

    def _allocate_rows(self, cohort: Cohort) -> Tensor:
        """Return the cohort's rows in the tables, [n]; devices without a row get one."""
        if self._count == self._num_rows:
            return cohort.flat_index
        rows = self._row[cohort.flat_index]
        new = cohort.flat_index[rows < 0]
        count = self._count + len(new)
        if 2 * count > self._num_rows:
            self._write_all()
            return cohort.flat_index
        if len(new):
            if count > self._capacity:  # room for these, and for the same number of later ones
                self._capacity = 2 * count
                for name, old in self._table.items():
                    self._table[name] = old.new_empty(self._capacity, *old.shape[1:])
                    self._table[name][: self._count] = old[: self._count]
            self._row[new] = torch.arange(self._count, count, device=new.device)
            self._count = count
            for name in self._table:
                self._begin(name, new)
            rows = self._row[cohort.flat_index]
        return rows

    def _begin(self, name: str, flat_index: Tensor) -> None:
        """Set the rows of devices to a tensor's initial state."""
        table, start = self._table[name], self._start[name].squeeze(1)
        table.index_copy_(0, self._row[flat_index], start[flat_index // self._num_devices])

    def _write_all(self) -> None:
        """Write the rows of every device, in order."""
        if self._count < self._num_rows:
            self._table = self._copy_all()
            self._row = torch.arange(self._num_rows, device=self._device)
            self._count = self._capacity = self._num_rows

    def _copy_all(self) -> Tensors:
        """Return new tables [S * K, *shape] of all devices."""
        cells, all_ = self._find_allocated(), {}
        for name, table in self._table.items():
            whole = all_[name] = table.new_empty(self._num_rows, *table.shape[1:])
            by_trial = whole.view(self._num_trials, -1, *whole.shape[1:])
            for own, start in zip(by_trial, self._start[name], strict=True):
                own.copy_(start.expand_as(own))  # one by one, so that no second copy is made
            whole.index_copy_(0, cells, take_rows(table, self._row[cells]))
        return all_

    def _view_table(self, name: str) -> Tensor:
        """View the table of a tensor, with a row for each device, as [S, K, *shape]."""
        return self._table[name].view(self._num_trials, -1, *self._table[name].shape[1:])
