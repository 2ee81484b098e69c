"""Train on false labels: class y becomes C - 1 - y, of C classes.

The update is an honest one of false data, so its norm and its direction in most coordinates are
like those of others.

References
----------
Tolpegin, Truex, Gursoy, Liu 2020, "Data Poisoning Attacks Against Federated Learning Systems",
    ESORICS.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from otafl.devices.attacks.base import Attack


class LabelFlip(Attack):
    """Flipped labels in local work."""

    changes_labels: ClassVar[bool] = True
    changes_updates: ClassVar[bool] = False

    name: Literal["label_flip"] = "label_flip"
