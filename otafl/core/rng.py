"""Random numbers from named streams, drawn by counters.

A number depends only on (root seed, trial, purpose, round, device, position in the draw, size of
the draw). So a trial draws the same numbers by itself or stacked, whichever devices take part, on
CPU or GPU, and after a resume. There is no state to save, and no loop over trials or devices. The
generator hashes a 64-bit key and a 64-bit counter with the finaliser of MurmurHash3 in Stafford's
variant 13 (the one of SplitMix64). Keys are chained through the same finaliser from a SHA-256 of
the purpose's name.

References
----------
Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators".
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from otafl.core.compiled_module import load_loops

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_M1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_M2 = -7723592293110705685  # 0x94D049BB133111EB
_U23 = 1.0 / (1 << 23)

_ROUNDS_AHEAD = 64
_NUMBERS_AHEAD = 2**18  # a block's temporaries then fit the processor's cache

_BLOCK = 2**17  # fits the cache, and is worth a second thread

STEP_BITS = 32
"""A step draws under the round (round << 32) + step."""

_owners: dict[str, str] = {}
"""Module that draws from a family of streams, by the family's name."""


class Purpose(str):
    """Name of a stream, declared once by the module that draws from it.

    Examples
    --------
    >>> NOISE = declare_purpose("noise", __name__)
    >>> START = declare_family("init", __name__)
    >>> streams.draw_normal(NOISE, round, shape)
    >>> streams.draw_uniform(START / "weight0", 0, shape)
    """

    def __truediv__(self, part: object) -> Purpose:
        """Return the stream of this name in the family."""
        return Purpose(f"{self}/{part}")


Round: TypeAlias = "int | Tensor"
"""Index of a round: a number that the host knows, or int64 [] on the processor that computes."""


def make_step_key(round: Round, step: int) -> Round:
    """Return the round number under which a step of a round's local work draws from a stream."""
    return (round << STEP_BITS) + step


def list_rounds(first: Round, count: int, device: torch.device) -> Tensor:
    """Return the numbers first .. first + count - 1, int64 [count], without any wait for them."""
    if torch.is_tensor(first):
        return torch.arange(count, device=device) + first
    return torch.arange(first, first + count, device=device)


def declare_purpose(name: str, module: str) -> Purpose:
    """Declare the stream of a module.

    Raises RuntimeError if another module draws from it or its family: equal numbers would serve two
    purposes.
    """
    family = name.partition("/")[0]
    owner = _owners.setdefault(family, module)
    if owner != module:
        raise RuntimeError(
            f"{module} and {owner} both draw from the stream {family!r}: equal numbers for two "
            "purposes; rename one"
        )
    return Purpose(name)


def declare_family(name: str, module: str) -> Purpose:
    """Declare the streams `name/...` of a module, and `name` itself, as `declare_purpose`."""
    return declare_purpose(name, module)


_Law = Callable[[Tensor, int, "torch.dtype"], Tensor]
"""(keys [m], count, dtype) -> [m, count]."""

_Pairs = tuple[Tensor, Tensor] | None
"""Trials [n] and devices [n] of the draws; None for the S trials."""


def _mix_(z: Tensor) -> Tensor:
    """Apply the 64-bit finaliser in place: z [...] int64, read as unsigned."""
    z.bitwise_xor_((z >> 30).bitwise_and_((1 << 34) - 1)).mul_(_M1)
    z.bitwise_xor_((z >> 27).bitwise_and_((1 << 37) - 1)).mul_(_M2)
    return z.bitwise_xor_((z >> 31).bitwise_and_((1 << 33) - 1))


def _extend_key(key: Tensor, word: Tensor | int) -> Tensor:
    """Derive a new key from a key and one more word."""
    return _mix_(key * _GOLDEN + word)


def derive_words(key: Tensor, index: int, count: int) -> Tensor:
    """Return words that follow from random words, such as `Streams.draw_device_words` gives.

    Parameters
    ----------
    key : Tensor, int64 [...]
        Random words.
    index : int
        Number of the derived words; others give independent ones.
    count : int
        Words of each key.

    Returns
    -------
    Tensor, int64 [..., count]
        64 random bits each.
    """
    return _mix_(_extend_key(key, index)[..., None] ^ mix_counters(count, key.device))


@functools.lru_cache(maxsize=512)
def _hash_purpose(purpose: str) -> int:
    digest = hashlib.sha256(purpose.encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


class Streams:
    """Random numbers of a stack of S trials.

    Points of a sweep with the same seed and trial number share all their numbers (common random
    numbers). Do not write to draws.

    Parameters
    ----------
    seeds, trial_index : sequence of int
        S root seeds and trial numbers.
    device, dtype : torch.device, torch.dtype
        Torch device and precision of the draws; float32 by default.

    Raises
    ------
    ValueError
        If the numbers of seeds and trials differ.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        trial_index: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        if len(seeds) != len(trial_index):
            raise ValueError(f"{len(seeds)} seeds for {len(trial_index)} trials")
        self.device = torch.device(device)
        self.dtype = torch.float32 if dtype is None else dtype
        pairs = list(zip(seeds, trial_index, strict=True))
        distinct = list(dict.fromkeys(pairs))  # in order, so that without repeats place is 0..S-1
        number = {pair: index for index, pair in enumerate(distinct)}
        root = torch.tensor([seed for seed, _ in distinct], dtype=torch.int64)
        trial = torch.tensor([trial for _, trial in distinct], dtype=torch.int64)
        place = torch.tensor([number[pair] for pair in pairs])
        self._distinct = _extend_key(_extend_key(root, 0), trial).to(self.device)
        self._place = place.to(self.device)
        self._shared = len(distinct) < len(pairs)
        self._by_trial = self._distinct[self._place]
        self._lookahead: dict[tuple[_Law, str, tuple[int, ...]], _Lookahead] = {}

    def make_common(self) -> Streams:
        """Make streams of one trial, seed 0, that server and devices of all trials know."""
        return Streams([0], [0], self.device, self.dtype)

    @property
    def num_trials(self) -> int:
        """The number of trials, S."""
        return len(self._place)

    def list_pairs(self, devices: int) -> tuple[Tensor, Tensor]:
        """List trial and device of every pair of the S trials and K devices, int64 [S K] each."""
        pair = torch.arange(self.num_trials * devices, device=self.device)
        return pair // devices, pair % devices

    def draw_uniform(self, purpose: str, round: Round, shape: tuple[int, ...]) -> Tensor:
        """Draw [S, *shape] uniform in (0, 1), for each trial."""
        return self._draw(_fill_uniform, purpose, round, shape, None)

    def draw_normal(self, purpose: str, round: Round, shape: tuple[int, ...]) -> Tensor:
        """Draw [S, *shape] standard normal, for each trial."""
        return self._draw(_fill_normal, purpose, round, shape, None)

    def draw_device_uniform(
        self, purpose: str, round: Round, trial: Tensor, device: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Draw [n, *shape] uniform in (0, 1), for the pairs trial [n], device [n]."""
        return self._draw(_fill_uniform, purpose, round, shape, (trial, device))

    def draw_device_normal(
        self, purpose: str, round: Round, trial: Tensor, device: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Draw [n, *shape] standard normal, for the pairs trial [n], device [n]."""
        return self._draw(_fill_normal, purpose, round, shape, (trial, device))

    def draw_device_uniform_rounds(
        self, purpose: str, rounds: Tensor, trial: Tensor, device: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Draw [R, n, *shape]: `draw_device_uniform` of each round [R] int64."""
        return self._draw_rounds(_fill_uniform, purpose, rounds, shape, (trial, device))

    def derive_device_keys(
        self, purpose: str, rounds: Tensor, trial: Tensor, device: Tensor
    ) -> Tensor:
        """Derive the keys [R, n] int64 of `draw_device_uniform_rounds`, for a compiled draw."""
        return self._derive_keys(purpose, rounds, (trial, device))

    def draw_words(self, purpose: str, round: Round, count: int) -> Tensor:
        """Draw [S, count] int64 of 64 random bits each, for each trial."""
        return self._draw(_fill_words, purpose, round, (count,), None)

    def draw_device_words(
        self, purpose: str, round: Round, trial: Tensor, device: Tensor, count: int
    ) -> Tensor:
        """Draw [n, count] int64 of 64 random bits each, for the pairs trial [n], device [n]."""
        return self._draw(_fill_words, purpose, round, (count,), (trial, device))

    def draw_seeds(self, purpose: str, index: int | Tensor) -> list[Any]:
        """Draw S non-negative 63-bit seeds for other generators; not for hot paths.

        Several indices [n, 1] give n lists of S seeds.
        """
        key = _extend_key(_extend_key(self._by_trial, _hash_purpose(purpose)), index)
        return (key & (2**63 - 1)).tolist()

    def make_generators(self, purpose: str, index: int = 0) -> list[np.random.Generator]:
        """Return S NumPy generators, for one-off draws such as partitions."""
        return [np.random.Generator(np.random.Philox(s)) for s in self.draw_seeds(purpose, index)]

    def _draw(
        self, law: _Law, purpose: str, round: Round, shape: tuple[int, ...], pairs: _Pairs
    ) -> Tensor:
        """Draw one round.

        If a stream is read round after round for the same rows, several rounds are drawn at once.
        This costs fewer dispatched operations and changes no bit.
        """
        if torch.is_tensor(round):
            return self._draw_rounds(law, purpose, round[None], shape, pairs)[0]
        tag = (law, purpose, shape)
        ahead = self._lookahead.get(tag)
        follows = ahead is not None and ahead.is_next(round, pairs)
        if ahead is None or not follows or round >= ahead.first + len(ahead.block):
            rows = self.num_trials if pairs is None else len(pairs[0])
            most = _NUMBERS_AHEAD // max(1, rows * math.prod(shape))
            count = max(1, min(_ROUNDS_AHEAD, most)) if follows else 1
            rounds = list_rounds(round, count, self.device)
            ahead = _Lookahead(
                round, pairs, self._draw_rounds(law, purpose, rounds, shape, pairs), round
            )
            self._lookahead[tag] = ahead
        ahead.last = round
        return ahead.block[round - ahead.first]

    def _draw_rounds(
        self, law: _Law, purpose: str, rounds: Tensor, shape: tuple[int, ...], pairs: _Pairs
    ) -> Tensor:
        """Draw the rounds, [R, S or n, *shape]."""
        key = self._derive_keys(purpose, rounds, pairs)
        values = law(key.view(-1), math.prod(shape), self.dtype).view(*key.shape, *shape)
        if pairs is None and self._shared:
            return values.index_select(1, self._place)
        return values

    def _derive_keys(self, purpose: str, rounds: Tensor, pairs: _Pairs) -> Tensor:
        """Derive the keys [R, n] of pairs, or those of the distinct trials."""
        root = self._distinct if pairs is None else self._by_trial
        word = _hash_purpose(purpose)
        kernel = get_kernel(root.device)
        if kernel is not None:
            return kernel.derive_keys(root, word, rounds, pairs)
        key = _extend_key(_extend_key(root, word), rounds[:, None])
        return key if pairs is None else _extend_key(key[:, pairs[0]], pairs[1] + 1)


@dataclass
class _Lookahead:
    """Block of rounds of a stream, drawn ahead, and the round that was read last."""

    first: int
    pairs: _Pairs
    block: Tensor
    last: int

    def is_next(self, round: int, pairs: _Pairs) -> bool:
        """Return whether this round, for these rows, is the last one read or the one after it."""
        if self.pairs is None or pairs is None:
            same = self.pairs is None and pairs is None
        else:
            same = self.pairs[0] is pairs[0] and self.pairs[1] is pairs[1]
        return same and self.last <= round <= self.last + 1


def get_kernel(device: torch.device) -> Any:
    """Return the module of the compiled generator; None if tensor operations draw."""
    return load_loops("otafl.core.rng_kernel", device)


def mix_counters(count: int, device: torch.device) -> Tensor:
    """Return the mixed counters 1..count.

    They are mixed so that no two keys ever share a run of values.
    """
    return _mix_counters((count - 1).bit_length(), device)[:count]


@functools.cache
def _mix_counters(power: int, device: torch.device) -> Tensor:
    """Return the mixed counters 1..2^power, which are kept because recorded graphs read them."""
    return _mix_(torch.arange(1, (1 << power) + 1, device=device) * _GOLDEN)


def _write_uniform_pairs(
    key: Tensor, counter: Tensor, upper: Tensor, lower: Tensor, scale: float = 1.0
) -> None:
    """Write two [n, m] arrays uniform in (0, 1), from the words of keys [n] at mixed counters [m].

    They have 23 bits each: exact in float32, never 0 or 1. Those of `lower` are times a scale.
    """
    kernel = get_kernel(key.device)
    if kernel is not None:
        kernel.write_uniform_pairs(key, counter, upper, lower, scale)
        return
    words = _mix_(key[:, None] ^ counter)
    high = (words >> 41).to(upper.dtype).add_(0.5 + (1 << 22))  # the shift keeps the sign
    low = words.bitwise_and_((1 << 23) - 1).to(upper.dtype).add_(0.5)
    torch.mul(high, _U23, out=upper)
    torch.mul(low, _U23, out=lower)
    if scale != 1.0:
        lower.mul_(scale)


def _fill_uniform(key: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    return _fill_blocks(key, count, dtype, _write_uniform_pairs)


def _fill_words(key: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    words = torch.empty(len(key), count, dtype=torch.int64, device=key.device)
    counter = mix_counters(count, key.device)
    kernel = get_kernel(key.device)
    if kernel is not None:
        kernel.write_words(key, counter, words)
        return words
    width = max(1, _BLOCK // max(1, len(key)))
    for first in range(0, count, width):
        block = words[:, first : first + width]
        _mix_(torch.bitwise_xor(key[:, None], counter[first : first + width], out=block))
    return words


def _fill_normal(key: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    return _fill_blocks(key, count, dtype, _write_normal_pairs)


def _write_normal_pairs(key: Tensor, counter: Tensor, upper: Tensor, lower: Tensor) -> None:
    """Write two [n, m] arrays of normal numbers, from the words of keys [n] at counters [m]."""
    _write_uniform_pairs(key, counter, upper, lower, 2.0 * math.pi)
    _apply_box_muller_(upper, lower)


def _apply_box_muller_(upper: Tensor, angle: Tensor) -> None:
    """Transform uniform numbers and angles into normal numbers, in place.

    Compiled draws use it as well, because other libraries than torch round its functions otherwise.
    """
    radius = upper.log_().mul_(-2.0).sqrt_()
    cosine = angle.cos()
    angle.sin_().mul_(radius)
    upper.mul_(cosine)


def _fill_blocks(
    key: Tensor,
    count: int,
    dtype: torch.dtype,
    write: Callable[[Tensor, Tensor, Tensor, Tensor], None],
) -> Tensor:
    """Return [n, count] numbers of keys [n].

    They are made in blocks of columns that fit the processor's cache.
    """
    half = (count + 1) // 2
    counter = mix_counters(half, key.device)
    values = torch.empty(len(key), 2 * half, dtype=dtype, device=key.device)
    width = max(1, _BLOCK // max(1, len(key)))
    for first in range(0, half, width):
        stop = min(first + width, half)
        columns = values[:, first:stop], values[:, half + first : half + stop]
        write(key, counter[first:stop], *columns)
    return values[:, :count]
