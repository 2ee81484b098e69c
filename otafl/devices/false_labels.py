"""Local data with false labels, of devices that attack by label flips."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from otafl.core.contracts import Batch, LocalData, unsqueeze_like


class FalseLabels:
    """Local data of which some rows have class C - 1 - y in place of y, of C classes.

    Parameters
    ----------
    data : LocalData
        True local data of n rows.
    mask : Tensor, bool [n]
        Rows with false labels.
    """

    def __init__(self, data: LocalData, mask: Tensor) -> None:
        self.round, self.steps, self.cohort = data.round, data.steps, data.cohort
        self._data, self._mask = data, mask
        self._last_class = data.count_classes().shape[1] - 1

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        """Return the minibatch of a local step."""
        return self._flip(self._data.draw_batch(step, draw_index))

    def draw_keys(self, step: int, draw_index: int = 0) -> Tensor | None:
        """Draw the keys [n] of a step, if the model needs them."""
        return self._data.draw_keys(step, draw_index)

    def load_full_batch(self) -> Batch:
        """Return all local data."""
        return self._flip(self._data.load_full_batch())

    def count_classes(self) -> Tensor:
        """Count the samples of each class, int64 [n, C]."""
        true = self._data.count_classes()
        return true.flip(1).where(self._mask[:, None], true)

    def count_samples(self) -> Tensor:
        """Count the samples, int64 [n]."""
        return self._data.count_samples()

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, which alone can be flipped."""
        return self._data.has_classes

    def take(self, row_index: Tensor) -> FalseLabels:
        """Return the local data of the named rows."""
        return FalseLabels(self._data.take(row_index), self._mask[row_index])

    def _flip(self, batch: Batch) -> Batch:
        mask = unsqueeze_like(self._mask, batch.y)
        return replace(batch, y=(self._last_class - batch.y).where(mask, batch.y))
