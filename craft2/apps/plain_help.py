"""Help of a command with long names: plain lines, where rich's columns would cut names short."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class PlainHelp(TyperCommand):
    """For `app.command(cls=PlainHelp)`: what a long option means is below it, not beside it."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings | {"rich_markup_mode": None})
