"""Export to LiteRT (TensorFlow Lite).

The module's layers become TensorFlow operations, which TensorFlow converts and the LiteRT
interpreter runs.

The file takes samples as PyTorch does, [batch, *input_shape]; inside, images are channels last.
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
from otafl.exporting.measure import ModelSource, Run
from otafl.models.modules import Mean, Mixture
from otafl.models.step_contract import Sum


def write_litert(source: ModelSource, path: Path) -> Run:
    """Write a file with an open batch size, 1 by default.

    Raises UserError if a package is not installed or a layer has no translation.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = import_extra("--to litert", "tensorflow", "tensorflow")
    runtime = import_extra("--to litert", "tensorflow", "ai_edge_litert.interpreter")
    layers = LayerTranslator(tf)
    spec = tf.TensorSpec([None, *source.input_shape], tf.float32, name="samples")
    function = tf.function(
        lambda x: layers.translate_last(source.module, x), input_signature=[spec]
    )
    root = tf.Module()
    root.function = function
    concrete = function.get_concrete_function()
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


class LayerTranslator:
    """Translator of modules into TensorFlow operations.

    It works on images [batch, height, width, channels] and on vectors.
    """

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self._known: dict[type[nn.Module], Callable[[Any, Any], Any]] = {
            nn.Sequential: self.translate_chain,
            Sum: lambda m, x: self(m.body, x) + self(m.shortcut, x),
            Mixture: self.translate_mixture,
            Mean: lambda m, x: tf.add_n([self(one, x) for one in m.parts]) / len(m.parts),
            nn.Identity: lambda m, x: x,
            nn.Dropout: lambda m, x: x,
            nn.Flatten: self.translate_flatten,
            nn.Unflatten: self.translate_image,
            nn.Linear: self.translate_linear,
            nn.Conv2d: self.translate_convolution,
            nn.BatchNorm1d: self.translate_batch_norm,
            nn.BatchNorm2d: self.translate_batch_norm,
            nn.GroupNorm: self.translate_group_norm,
            nn.ReLU: lambda m, x: tf.nn.relu(x),
            nn.LeakyReLU: lambda m, x: tf.nn.leaky_relu(x, m.negative_slope),
            nn.Tanh: lambda m, x: tf.tanh(x),
            nn.Sigmoid: lambda m, x: tf.sigmoid(x),
            nn.MaxPool2d: self.translate_max_pool,
            nn.AdaptiveAvgPool2d: self.translate_mean_pool,
        }

    def __call__(self, module: nn.Module, x: Any) -> Any:
        found = self._known.get(type(module))
        if found is None:
            raise UserError(
                f"--to litert: no translation of a {type(module).__name__}; use --to onnx, "
                "or a torch.nn.Sequential of common layers"
            )
        return found(module, x)

    def translate_last(self, module: nn.Module, x: Any) -> Any:
        """Apply the whole module to samples as PyTorch takes them."""
        if len(x.shape) == 4:
            x = self._to_channels_last(x)
        return self.tf.identity(self(module, x), name="scores")

    def translate_chain(self, module: nn.Sequential, x: Any) -> Any:
        return functools.reduce(lambda x, one: self(one, x), module, x)

    def translate_mixture(self, module: Mixture, x: Any) -> Any:
        tf = self.tf
        if module.of_values:
            raise UserError("--to litert: no translation of a mixture of values; use --to onnx")
        scores = [tf.nn.log_softmax(self(part, x)) for part in module.parts]
        pi = _to_numpy(module.log_pi)
        # the largest by hand: reduce_logsumexp asks whether it is finite, which has no kernel here
        each = tf.stack([one + p for one, p in zip(scores, pi, strict=True)], -1)
        top = tf.reduce_max(each, -1, keepdims=True)
        return tf.math.log(tf.reduce_sum(tf.exp(each - top), -1)) + tf.squeeze(top, -1)

    def translate_flatten(self, module: nn.Flatten, x: Any) -> Any:
        """Flatten images in PyTorch's order of their numbers: channel, height, width."""
        if len(x.shape) == 4 and x.shape[3] > 1 and x.shape[1] * x.shape[2] > 1:
            x = self.tf.transpose(x, [0, 3, 1, 2])
        return self.tf.reshape(x, [-1, int(np.prod(x.shape[1:]))])

    def translate_image(self, module: nn.Unflatten, x: Any) -> Any:
        return self._to_channels_last(self.tf.reshape(x, [-1, *module.unflattened_size]))

    def translate_linear(self, module: nn.Linear, x: Any) -> Any:
        y = self.tf.matmul(x, _to_numpy(module.weight).T)
        return y if module.bias is None else y + _to_numpy(module.bias)

    def translate_convolution(self, module: nn.Conv2d, x: Any) -> Any:
        tf = self.tf
        if isinstance(module.padding, str) or set(module.dilation) != {1}:
            raise UserError("--to litert: no translation of a dilated or string-padded convolution")
        high, wide = module.padding
        if high or wide:
            x = tf.pad(x, [[0, 0], [high, high], [wide, wide], [0, 0]])
        weight = _to_numpy(module.weight)
        if module.groups == 1:
            y = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), module.stride, "VALID")
        elif module.groups == module.in_channels == module.out_channels:
            y = tf.nn.depthwise_conv2d(x, weight.transpose(2, 3, 0, 1), [1] * 4, "VALID")
            y = y[:, :: module.stride[0], :: module.stride[1]] if max(module.stride) > 1 else y
        else:
            raise UserError(
                f"--to litert: no translation of a convolution of {module.groups} groups"
            )
        return y if module.bias is None else y + _to_numpy(module.bias)

    def translate_batch_norm(self, module: nn.BatchNorm2d, x: Any) -> Any:
        """Scale and shift, which the converter folds into a convolution before it."""
        assert module.running_mean is not None
        assert module.running_var is not None
        root = np.sqrt(_to_numpy(module.running_var) + np.float32(module.eps))
        scale = _to_numpy(module.weight) / root
        return x * scale + (_to_numpy(module.bias) - _to_numpy(module.running_mean) * scale)

    def translate_group_norm(self, module: nn.GroupNorm, x: Any) -> Any:
        tf, shape = self.tf, [-1, *x.shape[1:]]
        groups = tf.reshape(x, [*shape[:-1], module.num_groups, shape[-1] // module.num_groups])
        over = [*range(1, len(shape) - 1), len(shape)]
        mean, variance = tf.nn.moments(groups, over, keepdims=True)
        normal = tf.reshape((groups - mean) * tf.math.rsqrt(variance + module.eps), shape)
        return normal * _to_numpy(module.weight) + _to_numpy(module.bias)

    def translate_max_pool(self, module: nn.MaxPool2d, x: Any) -> Any:
        size, step = module.kernel_size, module.stride
        if module.padding or module.dilation != 1 or module.ceil_mode:
            raise UserError("--to litert: no translation of a padded, dilated or ceiled pooling")
        return self.tf.nn.max_pool2d(x, size, step, "VALID")

    def translate_mean_pool(self, module: nn.AdaptiveAvgPool2d, x: Any) -> Any:
        if module.output_size not in (1, (1, 1)):
            raise UserError("--to litert: no translation of an average pooling to several pixels")
        return self.tf.reduce_mean(x, [1, 2], keepdims=True)

    def _to_channels_last(self, x: Any) -> Any:
        if x.shape[1] == 1:
            return self.tf.reshape(x, [-1, *x.shape[2:], 1])
        return self.tf.transpose(x, [0, 2, 3, 1])


def _to_numpy(values: torch.Tensor) -> np.ndarray:
    out: np.ndarray = values.detach().cpu().float().numpy()
    return out
