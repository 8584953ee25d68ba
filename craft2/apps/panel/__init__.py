"""Live panels for notebooks: what real processes do, with buttons that kill them.

from craft2.apps.panel import live_panel

panel = live_panel()
panel                      # the last line of a cell: shows it
panel.story()              # in the next cell: the run as a figure that stays in the notebook

`model` decides what each button does, `driver` runs the processes, `view` draws. `group_panel` is
the same for a consumer group of phase 2.
"""

from craft2.apps.panel.group_panel import GroupPanel, group_panel
from craft2.apps.panel.view import LivePanel, live_panel

__all__ = ["GroupPanel", "LivePanel", "group_panel", "live_panel"]
