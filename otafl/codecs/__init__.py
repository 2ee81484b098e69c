"""Make the codec, which compresses a payload between the method and the transport."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.codecs.base import Codec
from otafl.core import registry
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.settings import Settings


def build(sections: Sequence[Settings], streams: Streams) -> Codec:
    """Make the codec of S trials, whose sections differ in stackable fields alone."""
    codec: Codec = registry.make_component(
        "codec", sections[0], build_hyper(sections, streams), streams
    )
    return codec
