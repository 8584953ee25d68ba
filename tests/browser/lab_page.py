"""What a learner does in JupyterLab, by mouse and keyboard, and what a saved notebook says."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Locator, Page, expect

LIMIT_S = 240


@dataclass
class Lab:
    """A running lab: the address it printed, and its workbook on disk."""

    address: str
    workbook: Path
    pid: int  # of `make lab`

    def workers(self) -> int:
        """How many processes that a notebook started are running."""
        commands = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                commands.append(process.cmdline())
        return sum("craft2.apps.lessons.processes" in command for command in commands)

    def cells(self, notebook: str) -> list[dict[str, Any]]:
        """The code cells of a notebook as saved; ValueError in the middle of a save."""
        saved = json.loads((self.workbook / "notebooks" / notebook).read_text())
        return [cell for cell in saved["cells"] if cell["cell_type"] == "code"]


def errors(cells: list[dict[str, Any]]) -> list[str]:
    """The errors in the outputs of some cells."""
    outputs = [output for cell in cells for output in cell["outputs"]]
    return [f"{o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]


class LabPage:
    """One browser tab with JupyterLab in it."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        self.wait_for(".jp-NotebookPanel .jp-Cell")
        self.wait_for("[id='jp-main-statusbar'] :text('| Idle')")  # the kernel is there

    def wait_for(self, selector: str) -> Locator:
        found = self.page.locator(selector).locator("visible=true").first
        found.wait_for()
        return found

    def open(self, path: str, selector: str) -> None:
        """Open a file of the workbook by its address, in a tab of its own."""
        base, _, token = self.lab.address.partition("?")
        base = base.partition("/lab")[0]
        self.page.goto(f"{base}/lab/tree/{path}?{token}")
        self.wait_for(selector)

    def open_notebook(self, name: str) -> None:
        self.open(f"notebooks/{name}", ".jp-NotebookPanel .jp-Cell")
        self.wait_for(f".lm-TabBar-tab.lm-mod-current:has-text('{name}')")
        self.wait_for("[id='jp-main-statusbar'] :text('| Idle')")  # the kernel is there

    def menu(self, menu: str, item: str) -> None:
        dialogs = self.page.locator(".jp-Dialog-content").all_inner_texts()
        assert not dialogs, dialogs
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.locator(".lm-Menu-item").get_by_text(item, exact=True).click()

    def save(self) -> None:
        self.menu("File", "Save Notebook")

    def run_all(self, name: str) -> list[dict[str, Any]]:
        """Run all cells of the open notebook to the end or to the first error; save; its cells."""
        before = max((cell["execution_count"] or 0 for cell in self.lab.cells(name)), default=0)
        cells: list[dict[str, Any]] = []

        def ended() -> bool:
            self.save()
            with contextlib.suppress(ValueError):
                cells[:] = self.lab.cells(name)
            fresh = [cell for cell in cells if (cell["execution_count"] or 0) > before]
            return bool(cells) and (len(fresh) == len(cells) or bool(errors(fresh)))

        self.start_all(before)
        # A save is much work for a browser that draws without a graphics card.
        self.wait_until(ended, f"the cells of {name}", every_ms=2500)
        return cells

    def start_all(self, before: int) -> None:
        """Press "Run All Cells"; again if nothing begins, as a press is lost on a page that has
        the notebook but not yet its kernel."""
        prompts = self.page.locator(".jp-Notebook .jp-InputPrompt").locator("visible=true")

        def begun() -> bool:
            counts = re.findall(r"\[(\*|\d+)\]", " ".join(prompts.all_inner_texts()))
            return any(count == "*" or int(count) > before for count in counts)

        for _ in range(3):
            self.menu("Run", "Run All Cells")
            for _ in range(40):
                if begun():
                    return
                self.page.wait_for_timeout(500)
        raise AssertionError(f"nothing runs; the page says {self.words()!r}")

    def words(self) -> str:
        """What the page says about itself: its tab, its dialogs, its status line."""
        where = ".lm-TabBar-tab.lm-mod-current, .jp-Dialog-content, [id='jp-main-statusbar']"
        return " | ".join(self.page.locator(where).locator("visible=true").all_inner_texts())

    def wait_until(self, reached: Callable[[], bool], what: str, every_ms: int = 300) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not reached():
            late = time.monotonic() > deadline
            assert not late, f"waited {LIMIT_S} s for {what}; the page says {self.words()!r}"
            self.page.wait_for_timeout(every_ms)

    def press(self, button: str, status: str) -> None:
        """Click a button of the live panel; wait until its line matches `status`."""
        self.page.get_by_role("button", name=button, exact=True).click()
        line = self.page.locator(".jp-OutputArea .widget-label").first
        expect(line).to_have_text(re.compile(status), timeout=60_000)

    def sees(self, *texts: str) -> None:
        """Every text is in an output or a text cell of the open notebook, and its pictures load."""
        notebook = self.page.locator(".jp-Notebook").locator("visible=true")
        for text in texts:
            notebook.locator(".jp-Cell").filter(has_text=text).first.wait_for(state="attached")
        pictures = notebook.locator(".jp-OutputArea img")
        pictures.first.wait_for(state="attached")
        for picture in pictures.all():
            picture.evaluate("picture => picture.scrollIntoView()")
            self.page.wait_for_timeout(300)
            assert picture.evaluate("picture => picture.naturalWidth") > 100
            assert picture.is_visible()

    def type_solution(self, path: str, first: str, last: str, solution: str) -> None:
        """In the editor, replace the lines from the one with `first` to that with `last`."""
        self.open(path, ".jp-FileEditor .cm-content")
        lines = self.page.locator(".jp-FileEditor .cm-line")
        lines.get_by_text(first).scroll_into_view_if_needed()
        lines.get_by_text(first).click()
        self.page.keyboard.press("Home")
        lines.get_by_text(last).click(modifiers=["Shift"])
        self.page.keyboard.press("Shift+End")
        self.page.keyboard.type(solution)
        self.page.keyboard.press("Control+s")
        saved = self.lab.workbook / path
        self.wait_until(lambda: solution in saved.read_text(), f"{path} to be saved")

    def terminal(self, command: str, done: Path, text: str) -> None:
        """Type a command into a new terminal and wait until the file `done` contains `text`."""
        self.menu("File", "New")
        self.page.locator(".lm-Menu-item").get_by_text("Terminal", exact=True).click()
        self.wait_for(".jp-Terminal .xterm-screen").click()
        self.page.wait_for_timeout(1000)
        self.page.keyboard.type(command + "\n")
        self.wait_until(lambda: text in done.read_text(), command)
