"""Export to LiteRT (TensorFlow Lite).

The module's layers become TensorFlow operations, which TensorFlow converts and the LiteRT
interpreter runs. The file takes samples as PyTorch does, [batch, *input_shape]; inside, images are
channels last, [batch, height, width, channels].
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from otafl.core.errors import UserError
from otafl.core.files import write_atomically
from otafl.core.packages import import_extra
from otafl.exporting.formats import ModelSource, Run
from otafl.models.layer_contract import Sum
from otafl.models.modules import Mean, Mixture


def write_litert(source: ModelSource, path: Path) -> Run:
    """Write a file with an open batch size, 1 by default.

    Raises UserError if a package is not installed or a layer has no translation.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = import_extra("--to litert", "tensorflow", "tensorflow")
    runtime = import_extra("--to litert", "tensorflow", "ai_edge_litert.interpreter")

    def apply(x: Any) -> Any:
        if len(x.shape) == 4:
            x = tf.transpose(x, [0, 2, 3, 1])
        return tf.identity(translate(tf, source.module, x), name="scores")

    spec = tf.TensorSpec([None, *source.input_shape], tf.float32, name="samples")
    root = tf.Module()
    root.function = tf.function(apply, input_signature=[spec], autograph=False)
    concrete = root.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], root)
    with write_atomically(path) as temporary:
        temporary.write_bytes(converter.convert())
    interpreter = runtime.Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    into, out = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()
    batch = 1

    def run(x: np.ndarray) -> np.ndarray:
        nonlocal batch
        if len(x) != batch:
            interpreter.resize_tensor_input(into, x.shape)
            interpreter.allocate_tensors()
            batch = len(x)
        interpreter.set_tensor(into, x)
        interpreter.invoke()
        scores: np.ndarray = interpreter.get_tensor(out[0]["index"])
        return scores

    return run


def translate(tf: Any, module: nn.Module, x: Any) -> Any:
    """Apply a module to x, a TensorFlow tensor of images or vectors.

    Raises UserError if a layer has no translation.
    """
    translate_layer = _LAYERS.get(type(module))
    out = None if translate_layer is None else translate_layer(tf, module, x)
    if out is None:
        label = type(module).__name__ if any(module.children()) else str(module)
        raise UserError(
            f"--to litert: no translation of {label}; use --to onnx, or a torch.nn.Sequential of "
            "common layers"
        )
    return out


def _mix(tf: Any, module: Mixture, x: Any) -> Any:
    scores = [translate(tf, part, x) for part in module.parts]
    log_pi = _to_numpy(module.log_pi)
    if module.of_values:
        return tf.add_n([one * p for one, p in zip(scores, np.exp(log_pi), strict=True)])
    # the largest by hand: reduce_logsumexp asks whether it is finite, which has no kernel here
    logs = [tf.nn.log_softmax(one) + p for one, p in zip(scores, log_pi, strict=True)]
    top = functools.reduce(tf.maximum, logs)
    return tf.math.log(tf.add_n([tf.exp(one - top) for one in logs])) + top


def _flatten(tf: Any, module: nn.Flatten, x: Any) -> Any:
    """Flatten images in PyTorch's order of their numbers: channel, height, width."""
    x = tf.transpose(x, [0, 3, 1, 2]) if len(x.shape) == 4 else x
    return tf.reshape(x, [-1, int(np.prod(x.shape[1:]))])


def _multiply(tf: Any, module: nn.Linear, x: Any) -> Any:
    y = tf.matmul(x, _to_numpy(module.weight).T)
    return y if module.bias is None else y + _to_numpy(module.bias)


def _convolve(tf: Any, module: nn.Conv2d, x: Any) -> Any:
    """Convolve all channels, or each with its own kernel; None for other convolutions."""
    if isinstance(module.padding, str) or set(module.dilation) != {1}:
        return None
    high, wide = module.padding
    x = tf.pad(x, [[0, 0], [high, high], [wide, wide], [0, 0]])
    weight = _to_numpy(module.weight)
    if module.groups == 1:
        y = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), module.stride, "VALID")
    elif module.groups == module.in_channels == module.out_channels:
        y = tf.nn.depthwise_conv2d(x, weight.transpose(2, 3, 0, 1), [1] * 4, "VALID")
        y = y[:, :: module.stride[0], :: module.stride[1]]
    else:
        return None
    return y if module.bias is None else y + _to_numpy(module.bias)


def _normalise_batch(tf: Any, module: nn.BatchNorm2d, x: Any) -> Any:
    """Scale and shift, which the converter folds into a convolution before it."""
    mean, variance = _to_numpy(module.running_mean), _to_numpy(module.running_var)
    scale = _to_numpy(module.weight) / np.sqrt(variance + np.float32(module.eps))
    return x * scale + (_to_numpy(module.bias) - mean * scale)


def _normalise_groups(tf: Any, module: nn.GroupNorm, x: Any) -> Any:
    shape = [-1, *x.shape[1:]]
    groups = tf.reshape(x, [*shape[:-1], module.num_groups, shape[-1] // module.num_groups])
    over = [*range(1, len(shape) - 1), len(shape)]
    mean, variance = tf.nn.moments(groups, over, keepdims=True)
    normal = tf.reshape((groups - mean) * tf.math.rsqrt(variance + module.eps), shape)
    return normal * _to_numpy(module.weight) + _to_numpy(module.bias)


def _pool_largest(tf: Any, module: nn.MaxPool2d, x: Any) -> Any:
    if module.padding or module.dilation != 1 or module.ceil_mode:
        return None
    return tf.nn.max_pool2d(x, module.kernel_size, module.stride, "VALID")


def _pool_mean(tf: Any, module: nn.AdaptiveAvgPool2d, x: Any) -> Any:
    return tf.reduce_mean(x, [1, 2], keepdims=True) if module.output_size in (1, (1, 1)) else None


_LAYERS: dict[type[nn.Module], Callable[[Any, Any, Any], Any]] = {
    nn.Sequential: lambda tf, m, x: functools.reduce(lambda x, one: translate(tf, one, x), m, x),
    Sum: lambda tf, m, x: translate(tf, m.body, x) + translate(tf, m.shortcut, x),
    Mean: lambda tf, m, x: tf.add_n([translate(tf, one, x) for one in m.parts]) / len(m.parts),
    Mixture: _mix,
    nn.Identity: lambda tf, m, x: x,
    nn.Dropout: lambda tf, m, x: x,
    nn.Flatten: _flatten,
    nn.Unflatten: lambda tf, m, x: tf.transpose(
        tf.reshape(x, [-1, *m.unflattened_size]), [0, 2, 3, 1]
    ),
    nn.Linear: _multiply,
    nn.Conv2d: _convolve,
    nn.BatchNorm1d: _normalise_batch,
    nn.BatchNorm2d: _normalise_batch,
    nn.GroupNorm: _normalise_groups,
    nn.ReLU: lambda tf, m, x: tf.nn.relu(x),
    nn.LeakyReLU: lambda tf, m, x: tf.nn.leaky_relu(x, m.negative_slope),
    nn.Tanh: lambda tf, m, x: tf.tanh(x),
    nn.Sigmoid: lambda tf, m, x: tf.sigmoid(x),
    nn.MaxPool2d: _pool_largest,
    nn.AdaptiveAvgPool2d: _pool_mean,
}
"""Kind of a layer -> its translation; None from it if the layer has exotic arguments."""


def _to_numpy(values: torch.Tensor | None) -> np.ndarray:
    assert values is not None
    out: np.ndarray = values.detach().cpu().float().numpy()
    return out
