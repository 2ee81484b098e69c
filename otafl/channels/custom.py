"""User-defined fading, a function of random draws: channel(draw, **options) -> h.

The result h is complex or real [R, S, K], for R rounds, S trials and K devices, or [R, S, K, A] for
A antennas at the server, or [R, S, K, A, F] for F equal stretches of a payload one after the other,
one for each coordinate for example. Otherwise h is constant over a payload. E|h|^2 = 1, because the
common keys give the large-scale gain (`path_loss_db`). The options are the other keys of the
section, without those that all channels have. A class is instantiated once, with the options, and
its instance is called with the draws. `draw` is a `Draws`. The h of a round must not depend on the
other rounds in the call.

Shapes and numbers are checked in every call. Before the first round it is checked that rounds do
not affect each other, and that the mean of |h|^2 is 1. An attribute `unit_power = False` skips the
last check, for a channel that has gains of its own. `correlation_rounds = 100` is the number of
rounds after which fading is practically independent (default 1); long-term statistics use rounds so
far apart.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from otafl.channels.base import Channel, ChannelSettings
from otafl.channels.fading import DRAWS, FADING, FAR, NUMBERS, ROUNDS_PER_BLOCK, RoundBlocks
from otafl.core.contracts import ChannelState
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart

CHECKED_ROUNDS = 256
MIN_ROUNDS = 16
CHECKED_NUMBERS = 1 << 18
STANDARD_ERRORS = 6.0
MIN_DEVIATION = 0.02
"""Smallest deviation of the mean of |h|^2 from 1 that is refused.

It must also be `STANDARD_ERRORS` standard errors, over `MIN_ROUNDS` to `CHECKED_ROUNDS` rounds with
about `CHECKED_NUMBERS` numbers.
"""

NUMBERS_AT_ONCE = 1 << 18


class Draws:
    """Random numbers of S trials and K devices in R rounds, from the streams of the run.

    They depend on seed, trial, device, round, and the order of the draws in a call.

    Parameters
    ----------
    streams : Streams
        Random streams of the S trials.
    devices : int
        Number of devices, K.
    rounds : Tensor, int64 [R]
        The rounds.

    Attributes
    ----------
    trials, devices : int
        S and K.
    rounds : Tensor, int64 [R, 1, 1]
        The rounds; those before the run, for delayed estimates (`csi: delay`), are below 0.
    """

    def __init__(self, streams: Streams, devices: int, rounds: Tensor) -> None:
        self._pairs = streams.list_pairs(devices)
        self._streams, self._count = streams, 0
        self.trials, self.devices = streams.num_trials, devices
        self.rounds = rounds[:, None, None]

    def draw_uniform(self, *shape: int, fixed: bool = False) -> Tensor:
        """Draw [R, S, K, *shape] uniform in (0, 1).

        With `fixed` the numbers are the same in all rounds: [1, S, K, *shape].
        """
        rounds = torch.zeros_like(self.rounds[:1]) if fixed else self.rounds
        purpose = FADING / "own" / self._count
        self._count += 1
        values = self._streams.draw_device_uniform_rounds(
            purpose, rounds.flatten(), *self._pairs, shape
        )
        return values.view(len(rounds), self.trials, self.devices, *shape)

    def draw_normal(self, *shape: int, fixed: bool = False) -> Tensor:
        """Draw [R, S, K, *shape] standard normal; `fixed` as of `draw_uniform`."""
        uniform = self.draw_uniform(*shape, fixed=fixed)
        return torch.special.ndtri(uniform.double()).to(uniform.dtype)

    def draw_complex_normal(self, *shape: int, fixed: bool = False) -> Tensor:
        """Draw [R, S, K, *shape] complex, CN(0, 1); `fixed` as of `draw_uniform`."""
        return torch.view_as_complex(self.draw_normal(*shape, 2, fixed=fixed) * math.sqrt(0.5))


class CustomChannel(Channel):
    """User-defined channel; h [S, K, A, 1, F] is complex.

    Long-term statistics are averages over many rounds. The mean power counts as 1, because it is
    checked.
    """

    class Settings(ChannelSettings, CustomPart):
        table: ClassVar = "channel"

        def find_function(self) -> Any:
            """Return the user's function with the section's keys.

            A class is instantiated with them.
            """
            given = () if inspect.isclass(loading.load(self.name, self.key)) else ("draw",)
            made = loading.load_checked(self.name, self.key, self.options, *given)
            if given:
                bound = functools.partial(made, **self.options)
                vars(bound).update(vars(made))  # its attributes
                return bound
            instance = made(**self.options)
            if not callable(instance):
                self.refuse(
                    "is a class whose instances cannot be called; expected a method "
                    "__call__(self, draw)"
                )
            return instance

    settings: Settings

    def prepare(self) -> None:
        self._channel = self.settings.find_function()
        apart = getattr(self._channel, "correlation_rounds", 1)
        if isinstance(apart, bool) or not isinstance(apart, int) or apart < 1:
            raise UserError(
                f"{self.settings.key}: the attribute correlation_rounds of "
                f"'{self.settings.name}' is {apart!r}; expected an integer of at least 1"
            )
        self.correlation_rounds = apart
        self._sizes: tuple[int, int] | None = None
        rounds = torch.tensor([5, 0, 6])  # a round must not depend on the others of a call
        among, alone = self._draw_h(rounds)[:1], self._draw_h(rounds[:1])
        if not torch.allclose(among, alone, rtol=1e-4, atol=1e-5):
            self.settings.refuse(
                "returned another h for round 5 alone than for rounds 5, 0 and 6 together; "
                "expected an h that does not depend on the other rounds in `draw.rounds`"
            )
        antennas, self._groups = self._sizes or (1, 1)
        unit_power = bool(getattr(self._channel, "unit_power", True))
        self.has_closed_form = unit_power and antennas == self._groups == 1
        numbers = self.streams.num_trials * self.devices * self._groups
        if unit_power and numbers > self._groups:  # of one device, it would show nothing
            # the deviation of the mean |h|^2 over rounds far apart, trials and devices is compared
            # with the standard errors over rounds and, for constant fading, over devices
            count = max(MIN_ROUNDS, min(CHECKED_ROUNDS, CHECKED_NUMBERS // numbers))
            powers = [
                amplitude.square().double().mean((3, 4)).flatten(1)
                for amplitude in self._yield_distant_rounds(count)
            ]
            power = torch.cat(powers)  # [count, S K]
            mean = float(power.mean())
            errors = [float(power.mean(1 - dim).std()) / power.shape[dim] ** 0.5 for dim in (0, 1)]
            if abs(mean - 1.0) > max(STANDARD_ERRORS * max(errors), MIN_DEVIATION):
                self.settings.refuse(
                    f"has a mean |h|^2 of {mean:.3g} over {count} rounds; expected 1: return h / "
                    f"{math.sqrt(mean):.3g}, or set the attribute unit_power = False"
                )
        self._fading = RoundBlocks(
            lambda first, rounds: self._draw_h(first + torch.arange(rounds)),
            max(1, min(ROUNDS_PER_BLOCK, NUMBERS_AT_ONCE // (numbers * antennas))),
        )

    def get_state(self, round: int) -> ChannelState:
        return ChannelState(h=self._fading[round].unsqueeze(3), gain=self.budget.gain)

    @functools.cached_property
    def unit_mean_amplitude(self) -> Tensor:
        """E|h|, [S, K]."""
        total = torch.zeros_like(self.budget.gain)
        count = min(DRAWS, NUMBERS // self.devices)
        for amplitude in self._yield_distant_rounds(count):
            total += amplitude.sum((0, 3, 4))
        return total / count

    def _yield_distant_rounds(self, count: int) -> Iterator[Tensor]:
        """Yield |h| [R, S, K, A, F] of `count` rounds far apart, some at a time."""
        rounds = FAR + self.correlation_rounds * torch.arange(count)
        numbers = self.budget.gain.numel() * self._groups
        for some in rounds.split(max(1, NUMBERS_AT_ONCE // numbers)):
            yield self._draw_h(some).abs()

    def _draw_h(self, rounds: Tensor) -> Tensor:
        """Return h [R, S, K, A, F] complex, for rounds [R] int64."""
        draw = Draws(self.streams, self.devices, rounds.to(self.streams.device))
        h = self._channel(draw)
        if not isinstance(h, Tensor):
            expected = self._format_expected(draw)
            self.settings.refuse(f"returned a {type(h).__name__}; expected a tensor {expected}")
        whole = len(rounds), draw.trials, draw.devices
        shape = tuple(h.shape)
        if h.dim() not in (3, 4, 5) or shape[:3] not in (whole, (1, *whole[1:])) or 0 in shape:
            self.settings.refuse(
                f"returned the shape {list(shape)}; expected {self._format_expected(draw)}"
            )
        h = h.to(self.streams.device, self.streams.dtype.to_complex())
        h = h.reshape(*shape, *[1] * (5 - len(shape))).expand(len(rounds), -1, -1, -1, -1)
        sizes = h.shape[3], h.shape[4]
        if self._sizes not in (None, sizes):
            self.settings.refuse(
                f"returned {sizes} antennas and stretches; expected {self._sizes}, as in earlier "
                "rounds"
            )
        self._sizes = sizes
        finite = torch.isfinite(torch.view_as_real(h)).all(-1)
        if not bool(finite.all()):
            r, s, k = (~finite).nonzero()[0, :3].tolist()
            self.settings.refuse(
                f"returned an h that is not finite, in round {int(rounds[r])}, at trial {s}, "
                f"device {k} of the stack; expected finite numbers"
            )
        return h

    def _format_expected(self, draw: Draws) -> str:
        shape = f"{len(draw.rounds)}, {draw.trials}, {draw.devices}"
        return (
            f"[{shape}], rounds by trials by devices, [{shape}, antennas], or "
            f"[{shape}, antennas, stretches of the payload]"
        )
