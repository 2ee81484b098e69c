"""Local data whose minibatches have keys, for models that draw random numbers in training."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from otafl.core.contracts import Batch, LocalData
from otafl.core.rng import Streams, declare_family, make_step_key

DROPOUT = declare_family("dropout", __name__)


class KeyedData:
    """Local data with a key for each row, local step and draw.

    A key depends only on seed, trial, device, round, step and draw, as the samples of a minibatch
    do. All local data together, which methods evaluate, have none.

    Parameters
    ----------
    data : LocalData
        Local data of n rows.
    streams : Streams
        Random streams of the S trials.
    """

    def __init__(self, data: LocalData, streams: Streams) -> None:
        self.round, self.steps, self.cohort = data.round, data.steps, data.cohort
        self._data, self._streams = data, streams

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        """Return the minibatch of a local step, with keys."""
        batch = self._data.draw_batch(step, draw_index)
        return replace(batch, keys=self.draw_keys(step, draw_index))

    def draw_keys(self, step: int, draw_index: int = 0) -> Tensor:
        """Draw the keys of a local step, int64 [n]."""
        purpose = DROPOUT / draw_index if draw_index else DROPOUT
        key, cohort = make_step_key(self.round, step), self.cohort
        return self._streams.draw_device_words(purpose, key, cohort.trial, cohort.device, 1)[:, 0]

    def load_full_batch(self) -> Batch:
        """Return all local data, without keys."""
        return self._data.load_full_batch()

    def count_classes(self) -> Tensor:
        """Count the samples of each class, int64 [n, C]."""
        return self._data.count_classes()

    def count_samples(self) -> Tensor:
        """Count the samples, int64 [n]."""
        return self._data.count_samples()

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes."""
        return self._data.has_classes

    def take(self, row_index: Tensor) -> KeyedData:
        """Return the local data of the named rows."""
        return KeyedData(self._data.take(row_index), self._streams)
