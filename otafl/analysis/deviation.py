"""Deviation of devices' personal models from each other, class by class."""

from __future__ import annotations

import xarray as xr

from otafl.core.errors import UserError


def compute_loss_deviation(result: xr.Dataset) -> xr.Dataset:
    """Compute the loss deviations of the personal models.

    Parameters
    ----------
    result : xarray.Dataset
        Result of a scenario with `training.class_losses: true`.

    Returns
    -------
    xarray.Dataset
        Deviations in nat, with the result's dims, device and class. `own` is Delta L = L - mean
        over devices of L, weighted by their samples of the class. L is the mean loss of a device's
        personal model on its own test samples of a class, or 0 without such samples. `common` is
        Delta G = G - unweighted mean over devices of G, with G the same loss on all test samples of
        the class. It requires `training.cross_test: true`.

    Raises
    ------
    UserError
        If the result has no class losses.

    References
    ----------
    Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in
        Federated Learning" (pFedBreD), appendix B.4.
    """
    name = "device_personal_own_class_loss"
    if name not in result:
        raise UserError(
            f"deviation: the result has no {name!r}; training.class_losses: true keeps it, for a "
            "method with personal models and devices with test samples of their own"
        )
    own, samples = result[name].fillna(0.0), result["device_own_class_samples"]
    mean = (samples * own).sum("device") / samples.sum("device")
    out = {"own": (own - mean).where(result[name].notnull().any("class"))}
    if "device_personal_class_loss" in result:
        common = result["device_personal_class_loss"]
        out["common"] = common - common.mean("device")
    for values in out.values():
        values.attrs = {"units": "nat", "long_name": "deviation of the loss from its mean"}
    return xr.Dataset(out)
