"""Import packages that only some installations have."""

from __future__ import annotations

import importlib
from typing import Any

from otafl.core.errors import UserError


def import_extra(what: str, extra: str, *names: str, instead: str = "") -> Any:
    """Import packages of an extra of otafl's, and return the last.

    Parameters
    ----------
    what : what needs them, which the message begins with.
    extra : as in `pip install 'otafl[extra]'`.
    names : of the modules.
    instead : another remedy.

    Raises
    ------
    UserError : if a package is not installed.
    """
    try:
        return [importlib.import_module(name) for name in names][-1]
    except ImportError as error:
        raise UserError(
            f"{what} needs a package ({error}); pip install 'otafl[{extra}]' would do{instead}"
        ) from error
