"""Codecs, which compress a payload between the method and the transport."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.codecs.base import Codec
from otafl.core import registry
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.settings import Settings


def build(sections: Sequence[Settings], streams: Streams) -> Codec:
    """Build the codec of S trials.

    Parameters
    ----------
    sections : sequence of Settings [S]
        Settings of the trials, which differ only in stackable fields.
    streams : Streams
        Random streams of the S trials.

    Returns
    -------
    Codec
        The codec.
    """
    codec: Codec = registry.make_component(
        "codec", sections[0], build_hyper(sections, streams), streams
    )
    return codec
