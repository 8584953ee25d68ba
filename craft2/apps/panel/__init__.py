"""A live panel for notebooks: throughput and lag of real processes, with buttons that kill them.

from craft2.apps.panel import live_panel

panel = live_panel()
panel                      # the last line of a cell: shows it
panel.story()              # in the next cell: the run as a figure that stays in the notebook

`model` decides what each button does, `driver` runs the processes, `view` draws.
"""

from craft2.apps.panel.view import LivePanel, live_panel

__all__ = ["LivePanel", "live_panel"]
