"""PyTorch and other large libraries, imported at their first use.

The settings, the schema and the messages of a component need no tensors. Files that a scenario's
validation imports therefore take their names from here:

    from otafl.core.lazy import Tensor, torch

Each of these names is a stand-in until a function first uses it in a file. The use imports the
library, and puts the library itself into the file's globals: later uses cost nothing. Type checkers
see only the library. It is what `lazy import torch` means in Python 3.15 (PEP 810).

A use at import, as a base class, as a decorator or in a default value, would import the library
at once. Such a file imports it plainly, and no file that a scenario's validation imports does so.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from scipy import optimize as optimize
    from scipy import special as special
    from scipy import stats as stats
    from torch import Tensor as Tensor
    from torch.nn import functional as functional
else:

    class _LazyModule:
        """Stand-in for a module, as a global of this name, until its first use."""

        def __init__(self, module: str) -> None:
            self._module = module
            self._name = module.rpartition(".")[2]

        def __getattr__(self, attribute: str) -> Any:
            module = importlib.import_module(self._module)
            names = sys._getframe(1).f_globals
            if names.get(self._name) is self:
                names[self._name] = module
            return getattr(module, attribute)

        def __reduce__(self) -> tuple[Any, ...]:
            return importlib.import_module, (self._module,)

    class _TensorType(type):
        """Class of `Tensor`: its instances are those of `torch.Tensor`."""

        def __instancecheck__(cls, value: object) -> bool:
            loaded = sys.modules.get("torch")
            return loaded is not None and isinstance(value, loaded.Tensor)

    class Tensor(metaclass=_TensorType):
        """`torch.Tensor`, for annotations and `isinstance`."""

    torch = _LazyModule("torch")
    optimize = _LazyModule("scipy.optimize")
    special = _LazyModule("scipy.special")
    stats = _LazyModule("scipy.stats")
    functional = _LazyModule("torch.nn.functional")
