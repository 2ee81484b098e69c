"""What every model shares: parameters side by side, and what is said before it is built."""

from __future__ import annotations

import pytest

from otafl.core import registry
from otafl.models import list_layer_sides

pytestmark = pytest.mark.exact


def test_sides_are_those_of_the_layers() -> None:
    section = registry.load_settings_class("model", "mlp")(hidden=(7, 5))
    assert list_layer_sides(section, (4, 4), 3) == [(16, 7), (7, 5), (5, 3)]
    section = registry.load_settings_class("model", "conv_net")()
    assert list_layer_sides(section, (64,), 10) is None


def test_sides_are_unknown_where_samples_do_not_fit_or_the_model_is_the_users() -> None:
    assert list_layer_sides(registry.load_settings_class("model", "cnn")(), (65,), 10) is None
    section = registry.load_settings_class("model", "no_such_module:f")(name="no_such_module:f")
    assert list_layer_sides(section, (64,), 10) is None
