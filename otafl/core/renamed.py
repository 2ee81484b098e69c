"""Former names in parts that users have written, which still work with a warning.

`OLD_NAMES` lists the methods and attributes of contracts, `OLD_GLOBALS` the names in modules. Both
are removed with version 0.3.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "Algorithm": {
        "apart": "is_per_device",
        "averages": "averages_increments",
        "combine": "update_server",
        "constants": "compute_constants",
        "device_rows": "per_device_state",
        "flops": "count_flops",
        "gathered": "import_shared",
        "keeps": "device_models",
        "late_scores": "slow_metrics",
        "level_flops": "count_submodel_flops",
        "levels": "list_submodels",
        "local": "run_local_update",
        "measures": "compute_metrics",
        "merges": "supports_merging",
        "model_of": "get_model",
        "needs_norms": "needs_normalisation",
        "needs_of": "get_needs",
        "own_state": "private_state",
        "round_operations": "flops_per_param_round",
        "row_weights": "compute_weights",
        "sends": "select_transmitters",
        "sends_sums": "needs_sums",
        "sent_down": "broadcast_names",
        "settle": "on_ack",
        "settles": "has_on_ack",
        "sizes": "submodels",
        "spread": "export_shared",
        "step_operations": "flops_per_param_step",
        "version": "get_version",
        "views": "build_views",
        "whole": "sends_model",
    },
    "Broadcast": {
        "blocks": "tensors",
        "reals": "num_coordinates",
        "reals_of": "coordinates_per_row",
        "rows": "expand_rows",
    },
    "Channel": {
        "believed": "estimate_fn",
        "closed_form": "has_closed_form",
        "flat": "is_flat",
        "has_places": "has_positions",
        "mean_inverse": "compute_mean_inverse",
        "normal": "is_gaussian",
        "of_others": "make_interfering",
        "outline": "get_large_scale_state",
        "places": "get_positions",
        "sounded": "num_sounded_paths",
        "state": "get_state",
        "state_among": "get_state_of_devices",
    },
    "ChannelState": {
        "later": "blocks_fn",
        "over": "extend_to",
        "paths": "paths_fn",
        "stops": "compute_cell_ends",
    },
    "ChannelStatistics": {
        "draws": "draw_samples",
        "noise": "noise_variance",
        "share_above": "prob_unit_gain_above",
        "share_over": "prob_gain_above",
    },
    "Codec": {
        "bits": "count_bits",
        "encoded": "encode_group",
        "exact": "is_lossless",
        "once": "has_single_row",
        "remembers": "has_memory",
        "restored": "decode_group",
        "restored_weight": "decode_weight",
        "settle": "on_ack",
        "values": "from_words",
        "words": "to_words",
    },
    "Coefficients": {
        "active": "active_mask",
        "on_air": "on_air_mask",
        "quiet": "silent_mask",
    },
    "Cohort": {
        "all_send": "all_transmit",
        "by_trial": "pad_by_trial",
        "cell": "flat_index",
        "fresh": "create",
        "grid": "scatter_to_grid",
        "host_cell": "host_flat_index",
        "host_pair": "host_trial_device",
        "level": "capacity_level",
        "population": "num_devices",
        "rows": "slice_rows",
        "rows_of": "rows_per_trial",
        "senders": "transmitters",
        "sends": "transmit_mask",
        "size": "num_rows",
        "trials": "num_trials",
        "unit_weight": "normalised_weight",
    },
    "Context": {
        "of_rows": "gather_hyper",
    },
    "Csi": {
        "exact": "is_perfect",
        "of_paths": "estimate_paths",
        "pilot_symbols": "num_pilot_symbols",
    },
    "Delivery": {
        "heard": "delivered_mask",
        "places": "row_order",
        "reals": "num_coordinates",
        "rows": "expand_rows",
        "taken": "select_rows",
    },
    "Draws": {
        "complex_normal": "draw_complex_normal",
        "normal": "draw_normal",
        "uniform": "draw_uniform",
    },
    "FineTuneSpec": {
        "rate": "learning_rate",
        "steps": "num_steps",
    },
    "Group": {
        "blocks": "tensors",
        "joined": "join",
        "known": "masked_tensors",
        "reals": "num_coordinates",
        "rows": "row_index",
        "share": "known_fraction",
        "with_share": "add_known_fraction",
    },
    "Link": {
        "able": "eligible_mask",
        "antennas": "num_antennas",
        "energy": "energy_budget",
        "lengths": "segment_lengths",
        "linear": "is_linear",
        "noise": "noise_variance",
        "payload": "num_symbols",
        "power": "symbol_power",
        "sends": "transmit_mask",
    },
    "LinkBudget": {
        "physical": "is_physical",
    },
    "LinkReport": {
        "heard": "delivered_mask_fns",
        "saved": "saved_tensors",
    },
    "LocalContext": {
        "work": "local_data",
    },
    "Model": {
        "described": "describe",
        "forward_flops": "count_forward_flops",
        "gradients": "compute_gradients",
        "kept_reals": "saved_activations",
        "sgd_": "take_sgd_step_",
        "size": "num_params",
        "trainable": "copy_trainable",
        "training_flops": "count_training_flops",
    },
    "Received": {
        "alive": "any_delivered",
        "came": "delivered_mask",
        "count": "group_weight",
        "each": "per_device",
        "reached": "coordinate_weight",
    },
    "Selection": {
        "blind": "is_channel_blind",
        "choose": "select_devices",
        "keys": "get_keys",
        "narrows": "is_narrowing",
        "senders": "select_transmitters",
        "side_symbols": "count_overhead_symbols",
        "sounds": "uses_sounding",
    },
    "ServerOptimiser": {
        "mean_square": "update_mean_square",
    },
    "Stateful": {
        "kept": "state_dict",
        "lasting": "state_attrs",
        "restore": "load_state_dict",
    },
    "Submodel": {
        "flops": "flops_fn",
        "kept_reals": "saved_activations",
        "parameters": "num_params",
    },
    "TransmitLimits": {
        "copies": "num_copies",
        "energy": "energy_budget",
        "per_symbol": "energy_per_symbol",
        "power": "power_share",
        "running": "trial_mask",
        "sent": "sent_fraction",
    },
    "View": {
        "each": "expand_per_device",
        "moments": "moments_fn",
        "predict": "predict_fn",
        "rows": "get_param_rows",
        "together": "ensemble",
        "whose": "param_index",
    },
    "Workload": {
        "batch": "effective_batch_size",
        "samples": "num_samples",
        "steps": "num_steps",
    },
}
"""Class -> old name of a method or attribute -> its new one."""

OLD_GLOBALS: Mapping[str, Mapping[str, str]] = {
    "otafl": {
        "deviation": "compute_loss_deviation",
        "symbols_per_round": "compute_symbols_per_round",
        "timeline_of": "extract_timeline",
        "to_reach": "compute_cost_to_reach",
        "tuned": "select_tuned",
    },
    "otafl.core.contracts": {
        "Blocks": "Tensors",
        "FineTune": "FineTuneSpec",
        "Heard": "DeliveredMasks",
        "LEAST_RATE": "MIN_RATE",
        "LEAST_SNR": "MIN_SNR",
        "Level": "Submodel",
        "Limits": "TransmitLimits",
        "LocalLoad": "Workload",
        "Moments": "MomentsFn",
        "Predict": "PredictFn",
        "Statistics": "ChannelStatistics",
        "Work": "LocalData",
        "column": "unsqueeze_like",
        "combined": "apply_combiner",
        "taken": "take_rows",
    },
    "otafl.core.settings": {
        "removed": "declare_removed",
        "stackable": "declare_stackable",
    },
    "otafl.data": {
        "loaded": "load_cached",
    },
    "otafl.own_loop.differentiable": {
        "combined": "apply_combiner",
        "within_budget": "scale_to_budget",
    },
    "otafl.plots": {
        "main_variable": "find_main_variable",
        "overview": "draw_overview",
        "table": "build_table",
    },
    "otafl.results.end_values": {
        "ended": "select_end_total",
    },
    "otafl.selection.base": {
        "host": "to_host",
        "lowest": "select_lowest",
    },
}
"""Module -> old name of a function, class or constant -> its new one."""


class Renamed:
    """A contract whose methods or attributes had other names, which `OLD_NAMES` lists.

    A user-defined class with a method of an old name works: the method gets its new name. Reading
    an old name gives the new attribute. A `DeprecationWarning` names both.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for old, new in list_old_names(cls).items():
            if old in vars(cls) and new not in vars(cls):
                _warn(f"{cls.__qualname__}.{old} is now called {new}; rename it", 3)
                setattr(cls, new, vars(cls)[old])

    if not TYPE_CHECKING:  # else every attribute would be known to type checkers

        def __getattr__(self, name: str) -> Any:
            new = list_old_names(type(self)).get(name)
            if new is None:  # the error that led here, which may be that of a property
                return super().__getattribute__(name)
            _warn(f"{type(self).__name__}.{name} is now called {new}", 3)
            return getattr(self, new)


def list_old_names(kind: type[Any]) -> dict[str, str]:
    """List the old names of a class and its bases: old name -> new one."""
    return {
        old: new
        for base in reversed(kind.__mro__)
        for old, new in OLD_NAMES.get(base.__name__, {}).items()
    }


def keep_old_names(module: str) -> None:
    """Make old names of a module, see `OLD_GLOBALS`, return the new ones with a warning."""
    scope: Any = sys.modules[module]
    scope.__getattr__ = lambda name: getattr(scope, find_new_name(module, name))


def find_new_name(module: str, name: str) -> str:
    """Return the new name of an attribute of a module, with a warning.

    It is for the `__getattr__` of modules.

    Raises
    ------
    AttributeError
        If the module never had an attribute of this name.
    """
    new = OLD_GLOBALS[module].get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(f"{module}.{name} is now called {new}", 4)
    return new


def _warn(text: str, stacklevel: int) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
