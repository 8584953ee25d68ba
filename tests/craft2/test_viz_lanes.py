"""Who had which partition: from a group's events to lanes, and to their picture."""

from __future__ import annotations

import itertools

from craft2.clock import ManualClock
from craft2.events import Events
from craft2.viz import Lanes, Mark, Span, lane_timeline, lanes_of_group, player
from craft2.viz.lanes import Arrow, Board


def history():
    """Two members share, one is killed and evicted, the other takes over; a third has nothing."""
    clock = ManualClock(1_000_000)
    events = Events("pool", clock)

    def assigned(who, *numbers, kind="assigned"):
        for number in numbers:
            events.emit(kind, who=who, topic="t", partition=number)

    events.emit("started")
    clock.advance(1)
    events.emit("stable", generation=1, because="a joined")
    assigned("a", 0)
    assigned("b", 10)
    events.emit("idle", who="c")
    clock.advance(1)
    events.emit("progress", topic="t", partition=0, offset=5, data={"lag": 7})
    events.emit("progress", topic="t", partition=10, offset=5, data={"lag": 3})
    events.emit("killed", data={"worker": "b"})
    clock.advance(1)
    events.emit("member-gone", who="b", because="b sent no heartbeat for 1.0 s")
    events.emit("stable", generation=2, because="b sent no heartbeat for 1.0 s")
    assigned("c", 10)
    clock.advance(1)
    assigned("a", 0, kind="revoked")
    clock.advance(1)
    events.emit("stopped", data={"worker": "a"})
    return events.events


def test_spans_end_where_a_partition_is_given_up_or_its_reader_dies():
    lanes = lanes_of_group(history())
    assert lanes.lanes == {
        "t-0": [Span(1, 4, "a")],
        "t-10": [Span(1, 2, "b"), Span(3, 5, "c")],
        "c": [Span(1, 3, "idle")],
    }
    assert lanes.owners() == ["a", "b", "c"]
    assert lanes.end_s == 5


def test_who_is_paused_reads_nothing_until_it_is_woken():
    clock = ManualClock()
    events = Events("x", clock)
    events.emit("assigned", who="a", topic="t", partition=0)
    events.emit("assigned", who="a", topic="t", partition=1)
    for kind in ("paused", "resumed"):
        clock.advance(1)
        events.emit(kind, data={"worker": "a"})
        if kind == "paused":
            clock.advance(1)
            events.emit("assigned", who="b", topic="t", partition=1)
    clock.advance(1)
    events.emit("stopped", data={"worker": "b"})
    assert lanes_of_group(events.events).lanes == {
        "t-0": [Span(0, 1, "a"), Span(3, 4, "a")],
        "t-1": [Span(0, 1, "a"), Span(2, 4, "b")],
    }


def test_marks_are_generations_with_their_because_and_what_was_done_from_outside():
    assert lanes_of_group(history()).marks == [
        Mark(1, "1", "a joined"),
        Mark(2, "killed", "b killed", fault=True),
        Mark(3, "2", "b sent no heartbeat for 1.0 s"),
        Mark(5, "stopped", "a stopped", fault=True),
    ]


def test_lag_is_that_of_all_partitions_from_the_first_reader_on():
    assert lanes_of_group(history()).lines == {"all partitions": ([1, 2, 2], [10, 10, 10])}


def test_a_lag_that_is_not_known_is_not_drawn_as_none_left():
    clock = ManualClock()
    events = Events("a", clock)
    for lag in (None, 7, None, 5):
        events.emit("assigned", topic="t", partition=0)
        events.emit("progress", topic="t", partition=0, data={"lag": lag})
        clock.advance(1)
    assert lanes_of_group(events.events).lines == {"all partitions": ([0, 1, 3], [7, 7, 5])}


def test_the_picture_has_a_bar_a_span_and_every_because_in_words():
    chart = lane_timeline(lanes_of_group(history()))
    upper, lower = chart.axes
    assert [label.get_text() for label in upper.get_yticklabels()] == ["t-0", "t-10", "c"]
    bars = [c for c in upper.collections if type(c).__name__ == "PolyCollection"]
    assert len(bars) == 4
    assert lower.get_ylabel() == "lag, messages"
    assert "2  b sent no heartbeat for 1.0 s" in chart._supxlabel.get_text()
    assert [text.get_text() for text in chart.legends[0].texts] == ["a", "b", "c", "idle"]


def near_each_other():
    """Two kills and two generations at nearly the same moment, and a kill at the end."""
    faults = [(1.0, "consumer-1 killed"), (1.1, "consumer-2 killed"), (9.9, "consumer-3 killed")]
    marks = [Mark(second, "killed", because, fault=True) for second, because in faults]
    marks += [Mark(1.2, "2", "a left"), Mark(1.21, "3", "b left"), Mark(5, "4", "c left")]
    return Lanes({"t-0": [Span(0, 10, "consumer-4")]}, sorted(marks), 10.0)


def test_words_of_what_happens_at_nearly_the_same_moment_do_not_overprint_each_other():
    chart = lane_timeline(near_each_other())
    chart.canvas.draw()
    texts = {text.get_text(): text.get_window_extent() for text in chart.axes[0].texts}
    assert list(texts)[-2:] == ["2, 3", "4"]
    assert len(texts) == 5
    boxes = list(texts.values())
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(box.x1 < chart.bbox.x1 for box in boxes)


def test_lines_of_rebalances_end_above_the_words_about_faults():
    axes = lane_timeline(near_each_other()).axes[0]
    ends = {line.get_color(): max(line.get_ydata()) for line in axes.lines}
    lowest_bar, words = 0.4, [text.xy[1] for text in axes.texts if "killed" in text.get_text()]
    assert ends["black"] <= 1 - lowest_bar < min(words)
    assert ends["#b00000"] > max(words)


def test_nothing_is_drawn_as_nothing():
    assert lanes_of_group([]) == Lanes({}, [], 0.0)
    assert lane_timeline(Lanes({}, [], 0.0))._repr_png_().startswith(b"\x89PNG")


def test_the_player_carries_its_story_and_looks_the_same_in_a_stored_output():
    film = player(lanes_of_group(history()), title="a </script> title")
    assert repr(film) == "<Player>"
    assert "b sent no heartbeat for 1.0 s" in film.html
    assert film.html.count("</script>") == 1
    assert 'sandbox="allow-scripts"' in film._repr_html_()


def test_the_player_steps_from_change_to_change_and_says_why(chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    page_file = tmp_path / "film.html"
    page_file.write_text(player(lanes_of_group(history()))._repr_html_())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(page_file.as_uri())
        film = page.frames[1]
        said = []
        for _ in range(3):
            film.click("#back")
            said.append(film.inner_text("#why"))
        film.click("#next")
        said.append(film.inner_text("#why"))
        film.hover("rect >> nth=0")
        browser.close()
    assert not wrong
    assert said[0] == "3.00 s, generation 2: b sent no heartbeat for 1.0 s\na: t-0\nc: t-10"
    assert said[1] == "2.00 s, b killed\na: t-0\nidle: c"
    assert said[2].startswith("1.00 s, generation 1: a joined\na: t-0\nb: t-10")
    assert said[3] == said[1]


def test_the_player_names_short_spans_shortly_and_merges_numbers_that_are_near(chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    lanes = near_each_other()
    lanes.lanes["t-1"] = [Span(0, 2, "consumer-4"), Span(2, 2.4, "consumer-12")]
    page_file = tmp_path / "film.html"
    page_file.write_text(player(lanes).html)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())
        said = "all => all.map(text => text.firstChild.data)"
        numbers = page.locator("svg text.bold").evaluate_all(said)
        inside = page.locator("svg text.inside").evaluate_all(said)
        browser.close()
    assert numbers == ["2, 3", "4"]
    assert inside == ["consumer-4", "consumer-4", "12"]


def test_a_film_of_messages_halts_where_they_arrive_and_draws_none_beyond_its_end(
    chromium, tmp_path
):
    from playwright.sync_api import sync_playwright

    arrows = [Arrow(0.01, 0.02, "a", "b", "hello"), Arrow(0.09, 0.12, "b", "a", "too late")]
    lanes = Lanes({who: [Span(0, 0.1, who)] for who in "ab"}, [], 0.1, arrows=arrows)
    lanes.boards = {"a": [Board(0, "listens", ())]}
    page_file = tmp_path / "film.html"
    page_file.write_text(player(lanes, at_s=0.0, stops_s=[0.02]).html)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.click("#next")
        said = page.inner_text("#why"), page.inner_text("#clock")
        right = page.locator("svg line").evaluate_all("all => all.map(l => l.x2.baseVal.value)")
        heads = page.locator("svg circle").count()
        browser.close()
    assert said == ("20 ms, a to b: hello", "20 ms")
    assert max(right) <= 750
    assert heads == 1
