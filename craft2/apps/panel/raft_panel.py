"""A live panel for a stage: let time pass, stop servers, lose messages, and go back.

    panel = RaftPanel(Stage(3))
    panel                   # the last line of a cell: shows it
    film(panel.stage)       # in the next cell: what you did, as a film that stays in the notebook

Going back keeps the branch that was left: `panel.branches` has them all, the latest last.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import ipywidgets

from craft2.apps.simulate.film import film
from craft2.apps.simulate.stage import Stage
from phase3_raft.raft.messages import RaftError

_WINDOW_MS = 300  # so much of the past is drawn


class Do(StrEnum):
    """The buttons, by the words on them."""

    STEP = "Let 10 ms pass"
    RUN = "Let 100 ms pass"
    RING = "Its timer rings"
    PROPOSE = "Propose to it"
    STOP = "Stop it"
    START = "Start it"
    CUT = "Cut it off"
    HEAL = "Heal the network"
    DROP = "Lose the message"
    BACK = "Go back to"


class RaftPanel:
    """Ten buttons; which server, which message, and which moment they mean; and the film."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.branches = [stage]
        self._proposed = 0
        narrow = ipywidgets.Layout(width="auto")
        self._buttons = {do: ipywidgets.Button(description=do.value, layout=narrow) for do in Do}
        for do, button in self._buttons.items():
            button.on_click(self._presser(do))
        self._server = ipywidgets.Dropdown(
            options=stage.numbers, description="server", layout=ipywidgets.Layout(width="160px")
        )
        self._message = ipywidgets.Dropdown(
            description="message", layout=ipywidgets.Layout(width="480px")
        )
        self._moment = ipywidgets.IntSlider(description="ms", min=0, max=0)
        self._status = ipywidgets.Label()
        self._film = ipywidgets.HTML()
        rows = (
            (Do.STEP, Do.RUN, Do.HEAL),
            (self._server, Do.RING, Do.PROPOSE, Do.STOP, Do.START, Do.CUT),
            (self._message, Do.DROP),
            (Do.BACK, self._moment),
        )
        boxes = [
            ipywidgets.HBox(
                [self._buttons[one] if isinstance(one, Do) else one for one in row],
                layout=ipywidgets.Layout(flex_flow="row wrap"),
            )
            for row in rows
        ]
        self._box = ipywidgets.VBox([self._status, *boxes, self._film])
        self._refresh()

    def press(self, button: str, which: int | None = None) -> None:
        """The same as a click: press("Stop it", 2). which: the server, message or moment; what the
        panel shows as chosen, if None. Raises RaftError for what makes no sense now."""
        if button not in list(Do):
            raise RaftError(f"there is no button {button!r}", f"press one of {', '.join(Do)}")
        do, stage = Do(button), self.stage
        server = self._server.value if which is None else which
        message = self._chosen_message() if which is None else which
        match do:
            case Do.STEP:
                stage.run(10)
            case Do.RUN:
                stage.run(100)
            case Do.RING:
                stage.time_out(server)
            case Do.PROPOSE:
                self._proposed += 1
                stage.propose(server, f"x = {self._proposed}")
            case Do.STOP:
                stage.stop(server)
            case Do.START:
                stage.start(server)
            case Do.CUT:
                stage.cut(server)
            case Do.HEAL:
                stage.heal()
            case Do.DROP:
                if message is None:
                    raise RaftError("no message is on the way", "let time pass until one is")
                stage.drop(message)
            case Do.BACK:
                self.stage = stage.fork(self._moment.value if which is None else which)
                self.branches.append(self.stage)
        self._refresh()

    def _chosen_message(self) -> int | None:
        """The one that is shown: a browser that was slower than we says that none is chosen."""
        if self._message.value is not None:
            return int(self._message.value)
        return next((number for _, number in self._message.options), None)

    def _presser(self, do: Do) -> Callable[[object], None]:
        def pressed(_: object) -> None:
            try:
                self.press(do)
            except RaftError as error:
                self._status.value = str(error)

        return pressed

    def status(self) -> str:
        """Where things stand, in one line of plain text."""
        stage = self.stage
        leader = "nobody leads" if stage.leader is None else f"server {stage.leader} leads"
        flying = len(stage.on_the_way())
        return f"{stage.now_ms} ms; {leader}; {flying} messages are on the way"

    def _refresh(self) -> None:
        stage = self.stage
        flying = [one for one in stage.on_the_way() if one.fate == "arrives"]
        self._message.options = [
            (f"{one.message.sender} to {one.message.to}: {one.words}", one.number) for one in flying
        ]
        self._moment.max = stage.now_ms
        self._moment.value = stage.now_ms
        self._status.value = self.status()
        shown = film(stage, from_ms=max(0, stage.now_ms - _WINDOW_MS), title="Raft, as you play it")
        self._film.value = shown._repr_html_()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The widget; without a kernel, the film of what was done."""
        shown: dict[str, Any] = dict(self._box._repr_mimebundle_() or {})
        shown["text/plain"] = "<RaftPanel>"
        shown["text/html"] = film(self.stage)._repr_html_()
        return shown

    def __repr__(self) -> str:
        return "<RaftPanel>"
