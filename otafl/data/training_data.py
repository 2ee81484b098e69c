"""Minibatches of local work, for all devices of all trials of a stack.

A minibatch is a uniform draw without replacement from a device's samples, independent of every
other round, step and draw. Its random numbers depend only on seed, trial, device, round, step and
draw. They do not depend on the other participants, the chunks of the cohort, the number of steps,
or how many rounds are drawn at once. `otafl.data.epochs` draws those of local work in epochs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Batch, Cohort, Samples
from otafl.core.rng import (
    STEP_BITS,
    Round,
    Streams,
    declare_family,
    get_kernel,
    list_rounds,
    make_step_key,
)
from otafl.data.augment import Augmentation
from otafl.data.device_splits import count_classes
from otafl.data.epochs import EpochBatches, EpochPlan, compute_sample_weights, list_positions

MINIBATCH = declare_family("minibatch", __name__)
DROPOUT = declare_family("dropout", __name__)

_ROUNDS_AHEAD = 64
_NUMBERS_AHEAD = 2**18  # the temporary tensors of a block then fit into the processor's cache


class TrainingData:
    """Training samples of S trials over K devices.

    Parameters
    ----------
    x : Tensor, [n, *shape]
        Samples of all devices.
    y : Tensor
        Their labels, int64 [n] of classes, [n, outputs] of values or [n, length] of tokens.
    index : Tensor, int64 [S, K, n_max]
        Indices of each device's samples, padded, from `device_splits.pack`.
    count : Tensor, int64 [S, K]
        Number of samples of each device.
    classes : int
        Number of classes.
    streams : Streams
        Random streams of the S trials.
    batch_size : int
        Samples of a minibatch, B. Minibatches are no wider than the largest device's samples.
    steps : int
        Local steps of a round, without epochs.
    augment : Augmentation, optional
        Augmentation of the images of minibatches.
    epochs : int, optional
        Passes of each device over its samples in a round, in place of `steps`.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        index: Tensor,
        count: Tensor,
        classes: int,
        streams: Streams,
        batch_size: int,
        steps: int,
        augment: Augmentation | None = None,
        epochs: int | None = None,
    ) -> None:
        place = streams.device
        self.x, self.y = x.to(place).contiguous(), y.to(place)
        self.flat_x = self.x.flatten(1)
        self.num_trials, self.num_devices, self.max_samples = index.shape
        self.index = index.to(place).reshape(-1, self.max_samples)
        self.count = count.to(place).reshape(-1)
        width = min(batch_size, self.max_samples)
        self.classes, self.batch_size, self.steps = classes, width, steps
        self.nominal_batch_size = batch_size
        self.streams, self.augment = streams, augment
        self.epochs = EpochPlan(self.index, self.count, width, epochs) if epochs else None
        self._some_full, self._all_full = bool(count.min() <= width), width == self.max_samples
        self._small = bool(count.min() < batch_size)
        self.is_equal = bool(count.min() == self.max_samples)
        numbers = self.num_trials * self.num_devices * steps * width
        self.rounds_ahead = min(_ROUNDS_AHEAD, _NUMBERS_AHEAD // numbers)
        self._drawn_ahead: dict[int, tuple[int, Tensor]] = {}
        self._presence: Tensor | None = None

    def select_cohort(self, round: Round, cohort: Cohort, has_keys: bool = False) -> CohortData:
        """Return the local data of a chunk of cohort rows in a round.

        has_keys: whether minibatches have keys, for models that draw random numbers in training.
        """
        return CohortData(self, round, cohort, has_keys)

    def count_steps(self, cohort: Cohort) -> np.ndarray:
        """Count the local steps of the cohort's rows, int64 [N]."""
        if self.epochs is None:
            return np.full(cohort.num_rows, self.steps)
        return self.epochs.count_steps(cohort)

    def draw_ahead(self, round: int, draw: int) -> Tensor:
        """Return a round's samples [T, S * K, B] int64 of the population, from a block of rounds.

        T is the number of local steps.
        """
        first, block = self._drawn_ahead.get(draw, (-self.rounds_ahead, self.count))
        if not 0 <= round - first < self.rounds_ahead:
            ticks = _make_step_keys(round, self.rounds_ahead, 0, self.steps, self.count.device)
            cells = torch.arange(self.num_trials * self.num_devices, device=self.count.device)
            first, block = round, self.draw_samples(ticks, cells, draw)
            self._drawn_ahead[draw] = first, block
        start = (round - first) * self.steps
        return block[start : start + self.steps]

    def draw_test_batch(self, round: int, step: int, flat_index: Tensor) -> Batch:
        """Draw a minibatch of the rows flat_index [n] for fine-tuning before a test.

        It is independent of the minibatches of local work.
        """
        ticks = _make_step_keys(round, 1, step, step + 1, flat_index.device)
        sample = self.draw_samples(ticks, flat_index, "test")[0]
        return self.gather(sample, self.compute_batch_weight(flat_index))

    def draw_samples(self, ticks: Tensor, flat_index: Tensor, draw: int | str) -> Tensor:
        """Draw the samples of minibatches.

        Parameters
        ----------
        ticks : Tensor, int64 [T]
            Keys of rounds and steps in the random stream.
        flat_index : Tensor, int64 [n]
            Rows, as indices in [S * K].
        draw : int or str
            Name of the draw.

        Returns
        -------
        Tensor, int64 [T, n, B]
            Indices of the samples.
        """
        purpose = MINIBATCH / draw if draw else MINIBATCH
        size, count = self.batch_size, self.count[flat_index]
        if self._all_full:  # every device gives all of its samples, and nothing is drawn
            position = list_positions(count, size).expand(len(ticks), -1, -1).clone()
        else:
            pairs = flat_index // self.num_devices, flat_index % self.num_devices
            uniform = self.streams.draw_device_uniform_rounds(purpose, ticks, *pairs, (size,))
            position = choose(uniform, count.clamp(min=size) if self._small else count)
            if self._some_full:
                full = count[:, None] <= size
                position = torch.where(full, list_positions(count, size), position)
        position += flat_index[:, None] * self.max_samples
        return self.index.flatten().index_select(0, position.flatten()).view_as(position)

    def compute_batch_weight(self, flat_index: Tensor) -> Tensor | None:
        """Compute the weights [n, B] of the samples of minibatches; None if all are equal.

        A device with n_k < B samples has weight 1/n_k on these and 0 on the padding, others 1/B.
        """
        if not self._small:
            return None
        count = self.count[flat_index]
        return compute_sample_weights(
            count.clamp(max=self.batch_size), self.batch_size, self.streams.dtype
        )

    def count_classes(self, flat_index: Tensor) -> Tensor:
        """Count the samples of each class of the rows, [n, classes] int64."""
        if self._presence is None:
            self._presence = count_classes(self.y[self.index], self.count, self.classes)
        return self._presence[flat_index]

    def gather(self, sample: Tensor, weight: Tensor | None) -> Batch:
        """Return copies of the samples [n, B]."""
        x = torch.embedding(self.flat_x, sample)  # index_select that keeps the shape, in one call
        if self.x.dim() > 2:
            x = x.view(*sample.shape, *self.x.shape[1:])
        y = self.y.index_select(0, sample.flatten())
        return Batch(x, y.view(*sample.shape, *self.y.shape[1:]), weight)


class CohortData:
    """Local data of the rows of a cohort in one round; see `contracts.LocalData`."""

    def __init__(
        self,
        data: TrainingData,
        round: Round,
        cohort: Cohort,
        has_keys: bool = False,
        flipped_mask: Tensor | None = None,
    ) -> None:
        self._has_keys, self._flipped_mask = has_keys, flipped_mask
        self.round, self.steps, self.cohort = round, data.steps, cohort
        self.batch_size = data.batch_size
        self._data, self._epochs = data, None
        if data.epochs is not None:
            self._epochs = EpochBatches(data.epochs, data.streams, round, cohort)
            self.steps = self._epochs.num_steps
        self._flat_index = cohort.flat_index
        # several rounds at once pay only if all devices take part
        is_whole = cohort.num_rows == data.num_trials * data.num_devices
        self._ahead = is_whole and data.rounds_ahead > 1 and not torch.is_tensor(round)
        self._drawn_ahead: dict[int, tuple[int, tuple[Tensor, ...]]] = {}

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        """Draw the minibatch of a local step: B different samples of each row.

        A device with at most B samples gives all of them in their order, padded with weight 0.

        Parameters
        ----------
        step : int
            Local step.
        draw_index : int
            Number of an independent draw of the same step.

        Returns
        -------
        Batch
            Samples x [n, B, *shape], labels and weights.

        Raises
        ------
        IndexError
            If the round has no such step.
        """
        if not 0 <= step < self.steps:
            raise IndexError(f"local step: got {step}; must be in 0..{self.steps - 1}")
        data = self._data
        batch = self._flip(self._gather(step, draw_index))
        if self._has_keys:
            batch = replace(batch, keys=self.draw_keys(step, draw_index))
        if data.augment is None:
            return batch
        tick = _make_step_keys(self.round, 1, step, step + 1, self._flat_index.device)
        cohort = self.cohort
        x = data.augment(
            batch.x, tick, cohort.trial, cohort.device, draw_index, data.nominal_batch_size
        )
        return replace(batch, x=x)

    def list_samples(self) -> Samples | None:
        """List the samples of all local steps, those of `draw_batch`, as `contracts.LocalData`."""
        data, row = self._data, self._flat_index
        is_changed = self._has_keys or self._flipped_mask is not None or data.augment is not None
        if is_changed or not self.has_classes:
            return None
        if self._epochs is not None:
            drawn = [self._epochs.draw(step, 0) for step in range(self.steps)]
            rows = torch.stack([sample for sample, _ in drawn])
            equal = rows.new_full(rows.shape[1:], 1.0 / data.batch_size, dtype=data.streams.dtype)
            weights = torch.stack([equal if own is None else own for _, own in drawn])
            return Samples(data.flat_x, data.y, rows, weights)
        if self._ahead:
            rows = data.draw_ahead(int(self.round), 0).index_select(1, row)
        else:
            ticks = _make_step_keys(self.round, 1, 0, self.steps, row.device)
            rows = data.draw_samples(ticks, row, 0)
        weight = data.compute_batch_weight(row)
        return Samples(data.flat_x, data.y, rows, None if weight is None else weight[None])

    def draw_keys(self, step: int, draw_index: int = 0) -> Tensor | None:
        """Draw the keys of a local step, int64 [n]; None if the model needs none.

        A key depends only on seed, trial, device, round, step and draw, as the samples do.
        """
        if not self._has_keys:
            return None
        purpose = DROPOUT / draw_index if draw_index else DROPOUT
        key, rows = make_step_key(self.round, step), (self.cohort.trial, self.cohort.device)
        return self._data.streams.draw_device_words(purpose, key, *rows, 1)[:, 0]

    def load_full_batch(self) -> Batch:
        """Return all local data, x [n, n_max, *shape], padded with weight 0."""
        data, weight = self._data, None
        if not data.is_equal:
            counts = self.count_samples()
            weight = compute_sample_weights(counts, data.max_samples, data.streams.dtype)
        return self._flip(data.gather(data.index[self._flat_index], weight))

    def flip_labels(self, mask: Tensor) -> CohortData:
        """Return the local data with class C - 1 - y in place of y, of C classes, in rows [n]."""
        return CohortData(self._data, self.round, self.cohort, self._has_keys, mask)

    def _flip(self, batch: Batch) -> Batch:
        """Return the minibatch with flipped labels in the rows that `flip_labels` names."""
        if self._flipped_mask is None:
            return batch
        flipped = self._data.classes - 1 - batch.y
        return replace(batch, y=flipped.where(self._flipped_mask[:, None], batch.y))

    def count_classes(self) -> Tensor:
        """Count the samples of each class of the rows, [n, classes] int64."""
        counts = self._data.count_classes(self._flat_index)
        if self._flipped_mask is None:
            return counts
        return counts.flip(1).where(self._flipped_mask[:, None], counts)

    def count_samples(self) -> Tensor:
        """Return how many samples the rows have, [n] int64."""
        return self._data.count[self._flat_index]

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes."""
        return self._data.y.dim() == 1

    def take(self, row_index: Tensor) -> CohortData:
        """Return the local data of the rows row_index [n] int64, which must be ordered by trial."""
        mask = None if self._flipped_mask is None else self._flipped_mask[row_index]
        cohort = self.cohort.take(row_index)
        return CohortData(self._data, self.round, cohort, self._has_keys, mask)

    def _gather(self, step: int, draw: int) -> Batch:
        """Return the minibatch of a step, before augmentation."""
        data = self._data
        if self._epochs is not None:
            return data.gather(*self._epochs.draw(step, draw))
        weight = data.compute_batch_weight(self._flat_index)
        if not self._ahead:
            return data.gather(self._draw_samples(step, draw), weight)
        sample = data.draw_ahead(int(self.round), draw)[step].index_select(0, self._flat_index)
        return data.gather(sample, weight)

    def _draw_samples(self, step: int, draw: int) -> Tensor:
        """Return samples [n, B] int64, drawn for as many steps at once as memory allows."""
        first, block = self._drawn_ahead.get(draw, (0, ()))
        if not first <= step < first + len(block):
            numbers = self.cohort.num_rows * self._data.batch_size
            steps = min(self.steps - step, max(1, _NUMBERS_AHEAD // max(1, numbers)))
            ticks = _make_step_keys(self.round, 1, step, step + steps, self._flat_index.device)
            sample = self._data.draw_samples(ticks, self._flat_index, draw)
            first, block = step, sample.unbind(0)
            self._drawn_ahead[draw] = first, block
        return block[step - first]


def choose(uniform: Tensor, count: Tensor) -> Tensor:
    """Choose B different positions in 0..count-1, every set with the same probability.

    Parameters
    ----------
    uniform : Tensor, [..., n, B]
        Uniform numbers in (0, 1) of at most 24 bits.
    count : Tensor, int64 [n]
        Number of positions, at least B.

    Returns
    -------
    Tensor, int64 [..., n, B]
        Positions.

    Notes
    -----
    Floyd's algorithm F2: pick i is uniform in 0..j with j = count - B + i, or is j if that pick is
    taken already.

    References
    ----------
    Bentley and Floyd 1987, "Programming Pearls: A Sample of Brilliance".
    """
    kernel = get_kernel(uniform.device)
    if kernel is not None:
        return kernel.choose(uniform, count)
    size = uniform.shape[-1]
    last = count[:, None] - size + torch.arange(size, device=count.device)
    # In double precision the product of 24 bits and a count is exact, so it stays below j + 1.
    pick = (uniform.double() * (last + 1)).long()
    for i in range(1, size):
        taken = (pick[..., :i] == pick[..., i : i + 1]).any(-1)
        pick[..., i] = torch.where(taken, last[:, i], pick[..., i])
    return pick


def _make_step_keys(
    round: Round, rounds: int, start: int, stop: int, device: torch.device
) -> Tensor:
    """Return the stream keys of the steps start..stop of the rounds.

    They are int64 [rounds * (stop - start)].
    """
    if rounds == 1:
        return list_rounds(make_step_key(round, start), stop - start, device)
    step = torch.arange(start, stop, device=device)
    first = list_rounds(round, rounds, device)
    return ((first << STEP_BITS)[:, None] + step).view(-1)
