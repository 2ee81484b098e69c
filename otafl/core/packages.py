"""Import of packages that only some installations have."""

from __future__ import annotations

import importlib
from typing import Any

from otafl.core.errors import UserError


def import_extra(what: str, extra: str, *names: str, instead: str = "") -> Any:
    """Import packages of one of otafl's extras, and return the last.

    Parameters
    ----------
    what : str
        Feature that needs them, the start of the message.
    extra : str
        Name of the extra, as in `pip install 'otafl[extra]'`.
    *names : str
        Names of the modules.
    instead : str, optional
        Text of another remedy, appended to the message.

    Raises
    ------
    UserError
        If a package is not installed.
    """
    try:
        return [importlib.import_module(name) for name in names][-1]
    except ImportError as error:
        raise UserError(
            f"{what} needs a package ({error}); run pip install 'otafl[{extra}]'{instead}"
        ) from error
