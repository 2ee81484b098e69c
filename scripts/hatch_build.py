"""Puts the scenarios inside the wheel, where `otafl new` finds them if there is no checkout."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Scenarios(BuildHookInterface):
    """Adds each scenario, but nothing else of a study."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        for file in [*root.glob("scenarios/*.yaml"), *root.glob("studies/*/*.yaml")]:
            build_data["force_include"][str(file)] = f"otafl/{file.relative_to(root).as_posix()}"
