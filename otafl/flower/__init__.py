"""Flower strategies whose clients transmit over otafl's uplink (extra `flower`).

Wrap a strategy and use it in its place:

    from otafl.flower import OverTheAir
    strategy = OverTheAir(FedAvg(), devices=10, channel="rayleigh", power="gbma", snr_db=10)

`OverTheAir` wraps a strategy of `flwr.serverapp.strategy`.
"""

from __future__ import annotations

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("otafl.flower needs Flower; run pip install 'otafl[flower]'") from error

from otafl.flower.strategy import OverTheAir

__all__ = ["OverTheAir"]
