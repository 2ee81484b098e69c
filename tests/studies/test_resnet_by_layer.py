"""Parameters and operations of ResNets by stage are those of the FedHM paper's Fig. 7."""

from __future__ import annotations

import numpy as np

from studies.fedhm import resnet_by_layer


def test_stages_are_those_of_the_paper() -> None:
    """To the last printed digit: three decimals of parameters, one of operations."""
    for title, network in resnet_by_layer.NETWORKS.items():
        params, operations = resnet_by_layer.count_by_stage(*network)
        printed_params, printed_operations = resnet_by_layer.PAPER[title]
        np.testing.assert_allclose(params, printed_params, atol=5.01e-4)
        np.testing.assert_allclose(operations[:-1], printed_operations[:-1], atol=0.0501)
