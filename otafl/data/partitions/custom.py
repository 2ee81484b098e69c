"""Deal samples out by a function of the user's:

    partition(deck, **options) -> the samples of each device

`deck` is an `otafl.data.partitions.Deck`: the labels, the number of devices and the trial's random
generator. What it returns is K lists or arrays of places among the samples, disjoint, none empty; a
sample can be left to no device. options: the other keys of the section. Attributes of the function,
`shuffled` and `by_user`, say what those of `Partition` say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from pydantic import ConfigDict

from otafl.data.dataset import Indices
from otafl.data.dealt import Dealt
from otafl.data.partitions.base import Deck, Partition
from otafl.user_code.own import OwnFunction


class CustomPartition(OwnFunction, Partition):
    """Call the user's function, and check what it returns."""

    model_config = ConfigDict(extra="allow", frozen=True)

    table: ClassVar = "partition"
    given: ClassVar = ("deck",)

    @property
    def shuffled(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.found(), "shuffled", False))

    @property
    def by_user(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.found(), "by_user", False))

    def deal(self, deck: Deck) -> Dealt:
        returned = self.call(deck)
        parts = [self._places(part, device) for device, part in enumerate(self._parts(returned))]
        if len(parts) != deck.devices:
            self._refuse(f"the samples of {len(parts)} devices", f"those of {deck.devices}")
        dealt = Dealt.of(parts)
        samples = len(deck.labels)
        if not ((dealt.places >= 0) & (dealt.places < samples)).all():
            self._refuse("places that are none", f"whole numbers from 0 to {samples - 1}")
        times = np.bincount(dealt.places, minlength=samples)
        if times.max() > 1:
            self._refuse(f"sample {times.argmax()} {times.max()} times", "each once at most")
        return dealt

    def _parts(self, returned: Any) -> Iterable[Any]:
        if not isinstance(returned, Sequence | np.ndarray) or isinstance(returned, str):
            self._refuse(f"a {type(returned).__name__}", "a list, one item for each device,")
        return returned

    def _places(self, part: Any, device: int) -> Indices:
        places = np.asarray(part)
        if places.ndim != 1 or not len(places) or places.dtype.kind not in "iu":
            got = f"shape {list(places.shape)} and type {places.dtype}"
            wanted = "at least one sample, as places [n] of whole numbers,"
            self._refuse(f"for device {device} an array of {got}", wanted)
        return places.astype(np.int64)

    def _refuse(self, fault: str, wanted: str) -> NoReturn:
        self.refuse(f"returned {fault}; {wanted} would do")
