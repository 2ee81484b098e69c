"""Settings of a channel of the user's own."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import ConfigDict

from otafl.channels.config import ChannelConfig
from otafl.core import custom
from otafl.core.settings import CustomSettings


class CustomChannelConfig(ChannelConfig, CustomSettings):
    """A channel of the user's own: `module:callable`, called with the random draws and the
    section's other keys, returning h for rounds, trials and devices."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def load(self) -> tuple[Any, custom.Keys]:
        """The user's function or class, and the keys that it takes. UserError if there is none."""
        found = custom.load(self.name, "channel.name")
        return found, custom.keys_of(found, 0 if inspect.isclass(found) else 1)
