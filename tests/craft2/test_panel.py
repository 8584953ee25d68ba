"""The live panel: what its buttons do, in any order, and that no process stays behind."""

from __future__ import annotations

import io
import json
import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jupyter_client.manager import KernelManager

from craft2.apps.lessons import files
from craft2.apps.lessons.processes import Worker, WorkerError
from craft2.apps.panel import driver as driving
from craft2.apps.panel.driver import Driver, PanelError
from craft2.apps.panel.model import GROUPS, LIMIT_S, PRODUCER, Button, End, PanelModel, Phase, Spawn
from craft2.apps.panel.view import LivePanel, live_panel
from craft2.clock import ManualClock

START, STOP, KILL, RESTART = Button


def names(effects):
    return [(type(effect).__name__, effect.name) for effect in effects]


def running():
    model = PanelModel()
    model.press(START, 0.0)
    return model


def test_start_spawns_all_and_a_second_press_nothing():
    model = PanelModel()
    assert [e.name for e in model.press(START, 0.0)] == [PRODUCER, *GROUPS]
    assert model.press(START, 0.1) == []
    assert model.phase is Phase.RUNNING


def test_before_the_start_no_other_button_does_anything():
    model = PanelModel()
    assert [model.press(button, 0.0) for button in (STOP, KILL, RESTART)] == [[], [], []]
    assert [model.enabled(button) for button in Button] == [True, False, False, False]


def test_kill_takes_one_consumer_after_the_other_and_restart_brings_them_back():
    model = running()
    assert model.press(RESTART, 1.0) == []
    assert model.press(KILL, 1.0) == [End("billing")]
    assert model.press(KILL, 2.0) == [End("archive")]
    assert model.press(KILL, 3.0) == []
    assert model.press(RESTART, 4.0) == [Spawn("archive"), Spawn("billing")]
    assert [words for _, words in model.marks] == ["billing killed", "archive killed", "restarted"]


def test_stop_lets_the_consumers_catch_up_and_a_second_stop_does_not_wait():
    model = running()
    model.acknowledged(PRODUCER, [(0, 0), (1, 0)])
    model.acknowledged("archive", [(0, 0), (1, 0)])
    assert model.press(STOP, 1.0) == [End(PRODUCER)]
    assert model.tick(1.1) == []
    model.acknowledged("billing", [(1, 0), (0, 0)])
    assert model.tick(1.2) == [End("archive"), End("billing")]
    assert model.phase is Phase.IDLE

    model = running()
    model.acknowledged(PRODUCER, [(0, 0)])
    model.press(STOP, 1.0)
    assert model.press(STOP, 1.1) == [End("archive"), End("billing")]
    assert "1 waiting" in model.status()


def test_start_while_stopping_goes_on():
    model = running()
    model.acknowledged(PRODUCER, [(0, 0)])
    model.press(STOP, 1.0)
    assert model.press(START, 1.1) == [Spawn(PRODUCER)]
    assert model.phase is Phase.RUNNING


def test_a_killed_consumers_lag_grows_and_its_second_handling_is_counted():
    model = running()
    model.acknowledged(PRODUCER, [(0, 0), (0, 1)])
    for group in GROUPS:
        model.acknowledged(group, [(0, 0)])
    model.press(KILL, 1.0)
    model.acknowledged(PRODUCER, [(0, 2)])
    assert model.lag("billing") == 2
    assert "billing (not running) handled 1, 0 of them twice, 2 waiting" in model.status()
    model.press(RESTART, 2.0)
    model.acknowledged("billing", [(0, 0), (0, 1), (0, 2)])
    assert "billing handled 3, 1 of them twice, 0 waiting" in model.status()


def test_a_run_that_nobody_stops_stops_itself():
    model = running()
    assert model.tick(LIMIT_S - 1) == []
    assert model.tick(LIMIT_S) == [End(PRODUCER)]


def test_rates_are_those_of_the_last_second():
    model = running()
    for half in range(1, 7):
        model.acknowledged(PRODUCER, [(half, n) for n in range(50)])
        model.tick(half / 2)
    seconds, rates = model.rates()[PRODUCER]
    assert seconds == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert rates == [0] + [100] * 6
    model.tick(5.0)  # a machine that was busy for two seconds
    assert model.rates()[PRODUCER][1][-1] == 0
    model.acknowledged(PRODUCER, [(9, n) for n in range(60)])
    model.tick(8.0)
    assert model.rates()[PRODUCER][1][-1] == 20


class Fake:
    """A process that is one in name only."""

    def __init__(self, name, computer):
        self.acks, self.name, self.computer, self.dead = [], name, computer, False
        assert name not in computer
        computer[name] = self

    @property
    def running(self):
        return not self.dead

    def die(self):
        self.dead = True
        del self.computer[self.name]

    def kill(self):
        assert self.running, "killed twice"
        self.die()

    def finish(self):
        assert self.dead
        raise WorkerError("a fake died", "")


class StillClock(ManualClock):
    """Waits for an event without end: the driver's own thread does nothing until it is closed."""

    def wait(self, event, timeout_s):
        return event.wait()


steps = st.sampled_from([*Button, *Button, "look", "wait", "ack", "crash", "no memory"])


@settings(deadline=None)
@given(st.lists(st.tuples(steps, st.sampled_from((PRODUCER, *GROUPS)))))
def test_whatever_is_pressed_the_processes_are_those_the_model_says(actions):
    computer, trouble, clock = {}, [], StillClock()

    def start(root, name, stored):
        if trouble:
            trouble.pop()
            raise OSError("no memory")
        return Fake(name, computer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driving, "PartitionedQueue", lambda root: io.BytesIO())
        driver = Driver("nowhere", start=start, clock=clock)
    for number, (step, name) in enumerate(actions):
        if isinstance(step, Button):
            enabled = driver.model.enabled(step)
            before = dict(computer)
            driver.press(step)
            assert enabled or computer == before
        elif step == "look":
            driver.look()
        elif step == "wait":
            clock.advance(100.0)
        elif step == "no memory":
            trouble[:] = [1]
        elif name in computer:
            if step == "ack":
                computer[name].acks.append((0, number))
            else:
                computer[name].die()
                driver.look()
        assert set(computer) == driver.model.alive
        assert driver.model.phase is not Phase.IDLE or not computer
        assert all(len(v) == len(driver.model.seconds) for v in driver.model.lags.values())
        assert all(driver.model.lag(group) >= 0 for group in GROUPS)
    driver.press(STOP)
    driver.press(STOP)
    assert not computer
    driver.press(START)
    driver.close()
    driver.press(START)
    assert not computer
    assert driver._thread is None or not driver._thread.is_alive()


def test_a_process_that_ends_by_itself_is_named_with_its_reason(tmp_path):
    driver = Driver(tmp_path / "queue", start=lambda root, name, stored: broken(root))
    driver.press(START)
    with pytest.raises(PanelError, match=r"process ended by itself: .*NotAQueue"):
        driver.wait_until("nothing", lambda model: False, 30.0)
    driver.close()


def broken(root):
    worker = Worker(driving.consume, root / "missing", "g", 1)
    worker.follow()
    return worker


@pytest.fixture
def panel(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    panel = live_panel()
    yield panel
    panel.close()


def test_a_story_kills_a_consumer_and_loses_nothing(panel, capsys):
    chart = panel.story()
    kept = "handled every message: nothing is lost"
    assert capsys.readouterr().out == f"archive: {kept}\nbilling: {kept}\n"
    words = [text.get_text() for text in chart.axes[0].texts]
    assert words[:3] == ["billing killed", "restarted", "stopped"]
    assert max(panel._driver.model.lags["billing"]) >= 200
    assert panel._driver._workers == {}
    assert bytes(panel._pictures[0].value).startswith(b"\x89PNG")
    buttons = {b.description: b.disabled for b in panel._buttons.values()}
    assert buttons == {
        "Start": False,
        "Stop": True,
        "Kill a consumer": True,
        "Restart consumers": True,
    }
    assert panel._status.value == panel.status()
    assert panel._repr_mimebundle_()["text/plain"].startswith("(a live panel")


def test_a_story_tells_what_was_pressed_if_anything_was(panel, capsys):
    for button in ("Start", "Start", "Kill a consumer", "Kill a consumer"):
        panel._buttons[Button(button)].click()
    panel._wait("ten messages", lambda model: len(model.known) >= 10)
    panel.story()
    assert capsys.readouterr().out.count("messages wait for it") == 2
    assert panel._driver._workers == {}


def test_a_second_panel_ends_the_first(panel):
    panel.press("Start")
    workers = [worker for worker, _ in panel._driver._workers.values()]
    second = live_panel()
    assert isinstance(second, LivePanel)
    assert [worker.running for worker in workers] == [False] * 3
    panel.press("Start")
    assert panel._driver._workers == {}
    second.close()


IN_A_KERNEL = """
from craft2.apps.panel import live_panel
panel = live_panel()
panel.press("Start")
panel.press("Kill a consumer")
print([worker._process.pid for worker, _ in panel._driver._workers.values()])
panel
"""


@pytest.mark.parametrize("how", ["killed", "restarted"])
def test_no_process_outlives_its_kernel(tmp_path, how):
    (tmp_path / "notebooks").mkdir()
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path / "notebooks"))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    shown = []
    client.execute_interactive(IN_A_KERNEL, timeout=60, output_hook=shown.append)
    texts = [m["content"]["text"] for m in shown if m["msg_type"] == "stream"]
    pids = json.loads(texts[0])
    assert len(pids) == 2
    assert all(map(files._alive, pids))
    if how == "killed":
        manager.signal_kernel(signal.SIGKILL)
    else:
        manager.restart_kernel()
    give_up = time.monotonic() + 60
    while any(files._alive(pid) and not zombie(pid) for pid in pids):
        assert time.monotonic() < give_up, "the panel's processes live on without their kernel"
        os.sched_yield()
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def zombie(pid):
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
