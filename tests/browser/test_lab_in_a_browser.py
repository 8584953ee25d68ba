"""A new learner, a browser, and nothing else: the lab from `make lab` to a saved notebook."""

from __future__ import annotations

from lab_page import errors

FIRST = "00_start_here.ipynb"
SECOND = "01_a_file_per_message.ipynb"
THIRD = "02_offsets_and_crashes.ipynb"
RAFT = "22_electing_a_leader.ipynb"


def test_a_new_learner_runs_00_and_01_and_turns_two_exercises_green(lab, page):
    # Red: the notebook stops at the exercise, and says what it is about.
    stopped = errors(page.run_all(FIRST))
    assert len(stopped) == 1
    assert "0.1" in stopped[0]
    assert "not started" in stopped[0]

    # Green: a solution typed into the file, in the lab's own editor.
    page.type_solution(
        "phase1_file_queue/partitioner.py",
        first="# your code here",
        last='reference("0.1")',
        solution="return (murmur2(key) & 0x7FFFFFFF) % num_partitions",
    )
    page.open_notebook(FIRST)
    cells = page.run_all(FIRST)
    assert not errors(cells)
    assert "0.1 a key's partition: passed" in str(cells)

    # The second one: red, solved in a terminal of the lab, green to the last cell, Spark included.
    page.open_notebook(SECOND)
    stopped = errors(page.run_all(SECOND))
    assert len(stopped) == 1
    assert "1.1" in stopped[0]
    publish = lab.workbook / "phase1_file_queue" / "publish.py"
    page.terminal("craft2 solve 1.1", publish, "disk.rename(")
    page.open_notebook(SECOND)
    cells = page.run_all(SECOND)
    assert not errors(cells)
    assert "1.1 atomic publish: passed" in str(cells)

    # The next day: what was saved can be read as it was left, pictures too, and nothing has run.
    page.page.reload()
    page.open_notebook(SECOND)
    page.sees("1.1 atomic publish: passed", "murmur2 agrees: True", "The same numbers in Spark")


def test_the_live_panel_runs_kills_and_leaves_no_process_behind(lab, page):
    tracker = lab.workbook / "phase1_file_queue" / "commit_tracker.py"
    page.terminal("craft2 solve 2.1", tracker, "self.ahead.remove(")
    page.open_notebook(THIRD)
    assert not errors(page.run_all(THIRD))
    assert not lab.workers(), "the notebook's own story has ended"

    page.press("Start", r"^running;.* archive handled [1-9]")
    page.press("Kill a consumer", r"billing \(not running\).* [1-9]\d* waiting")
    page.press("Restart consumers", r"billing handled")
    assert lab.workers() == 3
    page.press("Stop", r"^idle;.* 0 waiting;.* 0 waiting")
    assert not lab.workers()

    page.press("Start", r"^running;")
    page.menu("Kernel", "Restart Kernel…")
    page.page.locator(".jp-Dialog button").get_by_text("Restart").click()
    page.wait_until(lambda: not lab.workers(), "the workers to end with their kernel")


def test_an_election_is_played_by_hand(lab, page):
    elections = lab.workbook / "phase3_raft" / "raft" / "elections.py"
    page.terminal("craft2 solve 22.1", elections, "ask.last_term")
    page.open_notebook(RAFT)
    assert not errors(page.run_all(RAFT))

    page.press("Its timer rings", r"^0 ms; nobody leads; 2 messages")
    page.press("Let 100 ms pass", r"^100 ms; server 1 leads")
    page.press("Propose to it", r"4 messages are on the way")
    page.press("Lose the message", r"^100 ms; server 1 leads")
    page.press("Let 100 ms pass", r"^200 ms; server 1 leads")
    film = page.page.frame_locator(".jp-OutputArea iframe").last
    film.locator("svg text", has_text="leader, term 1").first.wait_for()
    film.locator(".box", has_text="x = 1").first.wait_for()
