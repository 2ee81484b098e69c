"""What methods have in common that share a part of the model and keep the rest at each device:
plain functions of parameters as blocks, name -> [n, *shape].

Server block "model" [S, P]: the shared parameters side by side. Device blocks "personal.<name>":
the kept ones.
"""

from __future__ import annotations

from collections.abc import Collection

from otafl.algorithms.parameters import MODEL, copied, named, own, view_of
from otafl.algorithms.whole_models import start
from otafl.core.contracts import Blocks, Broadcast, View
from otafl.core.rng import Streams
from otafl.models.base import Model, Shapes, flatten, unflatten

KEPT = "personal"


def shared_shapes(model: Model, kept: Collection[str]) -> Shapes:
    """The parameters that are not kept."""
    return {name: shape for name, shape in model.shapes.items() if name not in kept}


def split_start(model: Model, kept: Collection[str], streams: Streams) -> tuple[Blocks, Blocks]:
    """Server and device blocks; the kept parameters of a trial's devices start equal."""
    params = start(model, streams)
    own_part = {name: params.pop(name)[:, None] for name in tuple(params) if name in kept}
    return {MODEL: flatten(params)}, named(KEPT, own_part)


def joined(broadcast: Broadcast, devices: Blocks, shapes: Shapes) -> tuple[Blocks, Blocks]:
    """The received shared parameters, and all of a device's: theirs copied, the kept as they are,
    both to be trained in place."""
    received = unflatten(broadcast.blocks[MODEL], shapes)
    return received, copied(received) | own(devices, KEPT)


def personal_view(model: Model, server: Blocks, devices: Blocks, shapes: Shapes) -> View:
    """The server's shared parameters with each device's kept ones."""
    kept = own(devices, KEPT)
    population = next(iter(kept.values())).shape[1]
    shared = {
        name: block[:, None].expand(-1, population, *block.shape[1:])
        for name, block in unflatten(server[MODEL], shapes).items()
    }
    both = {name: block.flatten(0, 1) for name, block in (shared | kept).items()}
    return view_of(model, both, "device")
