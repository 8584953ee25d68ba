"""The panel as a learner sees it: four buttons, a line of counts, two charts.

The widgets live as long as the kernel. What stays in a saved notebook is the figure of the next
cell, which `LivePanel.story` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from craft2.apps.lessons.files import scratch
from craft2.apps.panel.driver import Driver
from craft2.apps.panel.model import GROUPS, Button, PanelModel, Phase
from craft2.clock import SystemClock
from craft2.viz.over_time import lag_over_time, rate_over_time
from craft2.viz.style import Chart

_WAIT_S = 40.0  # for one step of a story
_DRAW_EVERY_S = 1.0  # or three times as long as drawing takes, if a busy machine needs that
_shown: list[LivePanel] = []


def live_panel() -> LivePanel:
    """A new panel on a new queue; the panel made before, if any, ends."""
    while _shown:
        _shown.pop().close()
    _shown.append(LivePanel())
    return _shown[0]


class LivePanel:
    """Buttons, counts and charts of one producer and two consumers, each a process."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._driver = Driver(scratch() / "queue", self._refresh)
        self._buttons = {button: ipywidgets.Button(description=button.value) for button in Button}
        for button, widget in self._buttons.items():
            widget.on_click(self._presser(button))
        self._status = ipywidgets.Label()
        half = ipywidgets.Layout(width="48%", min_width="320px")
        self._pictures = [ipywidgets.Image(format="png", layout=half) for _ in range(2)]
        charts = ipywidgets.HBox(self._pictures, layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._box = ipywidgets.VBox(
            [ipywidgets.HBox(list(self._buttons.values())), self._status, charts]
        )
        self._drawn = (float("-inf"), 0)  # when to draw again, and how many marks were drawn
        self._refresh()

    def press(self, button: str) -> None:
        """The same as a click: press("Start")."""
        self._driver.press(Button(button))

    def status(self) -> str:
        """The line of counts."""
        return self._driver.model.status()

    def story(self) -> Chart:
        """Stop; print a line for each group; return the lag over time as a figure.

        If no button was pressed, this presses them: start, kill, restart, stop.
        """
        if not self._driver.model.seconds:
            self._play()
        if self._driver.model.phase is Phase.RUNNING:
            self._driver.press(Button.STOP)
        ends = (Phase.IDLE, Phase.CLOSED)
        self._wait("the consumers to catch up", lambda m: m.phase in ends)
        with self._driver.lock:
            model = self._driver.model
            for group in GROUPS:
                waiting = model.lag(group)
                kept = "handled every message: nothing is lost"
                print(f"{group}: {f'{waiting:,} messages wait for it' if waiting else kept}")
            return _lag_chart(model)

    def close(self) -> None:
        """End all its processes; its buttons do nothing from now on."""
        self._driver.close()

    def _play(self) -> None:
        # Counts, not seconds, so that a slow machine tells the same story.
        victim = GROUPS[-1]
        self._driver.press(Button.START)
        self._wait("150 messages", lambda m: len(m.handled[victim]) >= 150)
        self._driver.press(Button.KILL)
        self._wait("a lag", lambda m: m.lag(victim) >= 200)
        self._driver.press(Button.RESTART)
        self._wait("the lag to fall", lambda m: m.lag(victim) <= 10)
        enough = len(self._driver.model.known) + 100
        self._wait("100 messages more", lambda m: len(m.known) >= enough)

    def _wait(self, what: str, reached: Callable[[PanelModel], bool]) -> None:
        self._driver.wait_until(what, reached, _WAIT_S)

    def _presser(self, button: Button) -> Callable[[object], None]:
        return lambda _: self._driver.press(button)

    def _refresh(self) -> None:
        """Called by the driver with its lock held."""
        model = self._driver.model
        for button, widget in self._buttons.items():
            widget.disabled = not model.enabled(button)
        self._status.value = model.status()
        now = self._clock.monotonic()
        due, marks = self._drawn
        if now < due and len(model.marks) == marks and model.alive:
            return
        rates = rate_over_time(model.rates(), "Messages a second", model.marks)
        for picture, chart in zip(self._pictures, (rates, _lag_chart(model)), strict=True):
            picture.value = chart._repr_png_()
        took = self._clock.monotonic() - now
        self._drawn = (now + took + max(_DRAW_EVERY_S, 3 * took), len(model.marks))

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The widgets, and for a notebook that is read without a kernel the same line always."""
        bundle = dict(self._box._repr_mimebundle_() or {})
        return bundle | {"text/plain": "(a live panel: run this cell to see it)"}


def _lag_chart(model: PanelModel) -> Chart:
    lags = {group: (model.seconds, lag) for group, lag in model.lags.items()}
    return lag_over_time(lags, "Lag: messages not yet handled", model.marks)
