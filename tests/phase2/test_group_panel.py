"""The live panel of a group: what its buttons do to real processes, and that none stays behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from craft2.apps.lessons.groups import fill_topic, handle_slowly
from craft2.apps.panel.group_panel import Do, GroupPanel, group_panel
from phase2_groups.fetch_buffer import ConsumerRecord

SOON = 20  # seconds in which anything that is to happen has happened


@pytest.fixture
def panel(tmp_path: Path) -> Iterator[GroupPanel]:
    fill_topic(tmp_path / "queue", "flights", 4, 400, keyed=False)
    panel = group_panel(f"file:{tmp_path / 'queue'}", ["flights"], handle_slowly)
    yield panel
    panel.close()


def test_its_story_adds_pauses_wakes_and_kills(
    panel: GroupPanel, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = panel.story()
    assert figure.axes
    kinds = [event.kind for event in panel.events() if event.who == "pool"]
    assert kinds == ["started"] * 3 + ["paused", "resumed", "killed"]
    reasons = capsys.readouterr().out.splitlines()
    assert "consumer-1 sent no heartbeat for 1.0 s" in reasons
    assert panel.status() == "closed; nobody is running"


def test_its_story_goes_on_when_the_members_have_all_partitions_and_not_before(
    panel: GroupPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has put out consumer-1, and nobody has yet what it had: too early to wake it."""
    panel._settled(["consumer-1", "consumer-2"])
    left_over = {("flights", 2): "consumer-2", ("flights", 3): "consumer-2"}
    given = left_over | {("flights", 0): "consumer-2", ("flights", 1): "consumer-2"}
    seen = iter([left_over, given])
    with panel._lock:  # the thread that draws would look, too
        monkeypatch.setattr(panel, "_refresh", lambda: None)
        monkeypatch.setattr(panel._pool, "owners", lambda: next(seen))
    panel._settled(["consumer-2"])
    assert next(seen, None) is None
    monkeypatch.undo()


def test_a_button_that_makes_no_sense_does_nothing(panel: GroupPanel) -> None:
    panel.press(Do.RESUME, "consumer-1")
    panel.press(Do.KILL, "consumer-7")
    panel.press(Do.PAUSE, "consumer-1")
    panel.press(Do.LEAVE, "consumer-1")  # it stands still, and would never answer
    panel.press(Do.KILL, "consumer-1")
    panel.press(Do.RESUME, "consumer-1")
    kinds = [event.kind for event in panel.events() if event.who == "pool"]
    assert kinds == ["started", "started", "paused", "killed"]
    panel.close()
    panel.press(Do.ADD)
    assert panel.status() == "closed; nobody is running"


def test_clicks_are_presses_and_only_what_makes_sense_is_enabled(panel: GroupPanel) -> None:
    assert list(panel._choice.options) == ["consumer-1", "consumer-2"]
    panel._choice.value = "consumer-2"
    panel._buttons[Do.PAUSE].click()
    assert panel.status().endswith(" partitions, paused")
    enabled = {do for do, button in panel._buttons.items() if not button.disabled}
    assert enabled == {Do.ADD, Do.RESUME, Do.KILL}
    panel._choice.value = "consumer-1"
    enabled = {do for do, button in panel._buttons.items() if not button.disabled}
    assert enabled == {Do.ADD, Do.PAUSE, Do.LEAVE, Do.KILL}


def test_a_new_panel_ends_the_one_before(panel: GroupPanel, tmp_path: Path) -> None:
    other = group_panel(f"file:{tmp_path / 'queue'}", ["flights"], handle_slowly, members=1)
    assert panel.status() == "closed; nobody is running"
    assert other.status().startswith("consumer-1: ")
    other.close()


def never_ends(record: ConsumerRecord) -> None:
    print("in hand", flush=True)
    threading.Event().wait()


def test_a_member_that_cannot_leave_does_not_keep_the_panel_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    fill_topic(tmp_path / "queue", "flights", 4, 400, keyed=False)
    panel = GroupPanel(f"file:{tmp_path / 'queue'}", ["flights"], never_ends, members=1)
    said = panel._pool.folder / "consumer-1.log"
    panel._pool.wait_until(lambda: "in hand" in said.read_text())
    leaves = threading.Thread(target=panel.press, args=(Do.LEAVE, "consumer-1"), daemon=True)
    leaves.start()
    panel._pool.wait_until(lambda: "stopped" in [event.kind for event in panel.events()])
    closes = threading.Thread(target=panel.close, daemon=True)
    closes.start()
    closes.join(SOON)
    assert panel.status() == "closed; nobody is running"
    leaves.join(SOON)
    assert not leaves.is_alive()
