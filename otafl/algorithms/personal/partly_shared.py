"""Steps of methods that share a part of the model and keep the rest at each device.

The server's tensor "model" [S, P] holds the shared parameters side by side. The device's tensors
"personal.NAME" are its own parameters. All functions use parameters name -> [n, *shape].
"""

from __future__ import annotations

from collections.abc import Collection

from otafl.algorithms.parameters import add_prefix, draw_start, make_view, select_prefix
from otafl.core.contracts import MODEL, Broadcast, Tensors, View
from otafl.core.rng import Streams
from otafl.models.base import Model, Shapes, copy_params, flatten, unflatten

LOCAL_PREFIX = "personal"


def get_shared_shapes(model: Model, local_names: Collection[str]) -> Shapes:
    """Return the shapes of the shared parameters."""
    return {name: shape for name, shape in model.shapes.items() if name not in local_names}


def split_start(
    model: Model, local_names: Collection[str], streams: Streams
) -> tuple[Tensors, Tensors]:
    """Split the start of the model into server and device state.

    Parameters
    ----------
    model : Model
        Model.
    local_names : collection of str
        Names of the parameters that devices keep.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    server : dict of str to Tensor [S, P]
        Shared parameters.
    devices : dict of str to Tensor [S, 1, *shape]
        Own parameters, equal for all devices of a trial.
    """
    params = draw_start(model, streams)
    own_part = {name: params.pop(name)[:, None] for name in tuple(params) if name in local_names}
    return {MODEL: flatten(params)}, add_prefix(LOCAL_PREFIX, own_part)


def join_params(broadcast: Broadcast, devices: Tensors, shapes: Shapes) -> Tensors:
    """Join the received parameters and the device's own, to train in place.

    Parameters
    ----------
    broadcast : Broadcast
        Received parameters [n, P], which are copied.
    devices : dict of str to Tensor [n, *shape]
        State of the devices.
    shapes : dict of str to tuple of int
        Shapes of the shared parameters.

    Returns
    -------
    dict of str to Tensor [n, *shape]
        All parameters.
    """
    return copy_params(unflatten(broadcast.tensors[MODEL], shapes)) | select_prefix(
        devices, LOCAL_PREFIX
    )


def make_personal_view(model: Model, server: Tensors, devices: Tensors, shapes: Shapes) -> View:
    """Build the view of the server's shared parameters with each device's own."""
    kept = select_prefix(devices, LOCAL_PREFIX)
    num_devices = next(iter(kept.values())).shape[1]
    shared = {
        name: block[:, None].expand(-1, num_devices, *block.shape[1:])
        for name, block in unflatten(server[MODEL], shapes).items()
    }
    both = {name: block.flatten(0, 1) for name, block in (shared | kept).items()}
    return make_view(model, both, "device")
