"""Flower strategies whose clients transmit over otafl's uplink (extra `flower`).

Wrap a strategy and use it in its place:

    from otafl.flower import OverTheAirStrategy
    strategy = OverTheAirStrategy(FedAvg(), devices=10, channel="rayleigh", power="gbma", snr_db=10)

`OverTheAirStrategy` wraps a strategy of `flwr.serverapp.strategy`.
"""

from __future__ import annotations

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("otafl.flower needs Flower; run pip install 'otafl[flower]'") from error

from otafl.flower.strategy import OverTheAirStrategy

__all__ = ["OverTheAirStrategy"]
