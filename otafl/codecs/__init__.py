"""Make the codec, which compresses a payload between the method and the transport."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.codecs.base import Codec
from otafl.core import registry
from otafl.core.hyper import hyper_of
from otafl.core.rng import Streams
from otafl.core.settings import Settings


def build(sections: Sequence[Settings], streams: Streams) -> Codec:
    """Make the codec of S trials, whose sections differ in stackable fields alone."""
    codec: Codec = registry.make("codec", sections[0], hyper_of(sections, streams), streams)
    return codec
