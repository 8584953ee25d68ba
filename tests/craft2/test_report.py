"""The report: nothing from outside, nothing unescaped, nothing claimed that was not measured."""

from __future__ import annotations

import html.parser
import re

import pytest
from test_results import row
from typer.testing import CliRunner

from craft2.apps.bench.results import Results
from craft2.apps.cli import app
from craft2.apps.report import machines, render, write_report
from craft2.apps.report_figures import PHASE_1, lines, to_measure
from craft2.clock import ManualClock
from craft2.course.edition import Edition

GRADES = [
    {
        "exercise": "0.1",
        "title": "a partition",
        "status": "passed",
        "expected": "",
        "got": "",
    },
    {"exercise": "1.1", "title": "publish", "status": "failed", "expected": "<b>", "got": "a & b"},
    {"exercise": "01.1", "title": "prediction", "status": "recorded", "expected": "", "got": "4"},
    {
        "exercise": "01.2",
        "title": "prediction",
        "status": "not recorded",
        "expected": "",
        "got": "",
    },
]


def queue_row(**changes):
    fields = {
        "backend": "queue",
        "scenario": "lesson 01",
        "acks": "durable",
        "fsync_policy": "every message",
        "clients": 1,
        "messages_per_s": 1600.0,
        "p50_ms": 0.5,
        "p95_ms": 0.6,
        "p99_ms": 0.7,
        "p999_ms": 0.8,
    }
    return row(**fields | changes)


def plain(rows):
    return [{name: getattr(r, name) for name in r.__struct_fields__} for r in rows]


@pytest.fixture
def edition(tmp_path):
    (tmp_path / "craft2.toml").touch()
    return Edition(tmp_path)


def page(edition, grades=GRADES):
    return render(edition, grades, ManualClock(1_700_000_000_000))


def words(text):
    """The text of a page as read, without its marks and its styles."""
    body = re.sub(r"<style>.*</style>|<[^>]+>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(body).split())


class Links(html.parser.HTMLParser):
    """Everything that a page would fetch or run."""

    def __init__(self, text):
        super().__init__()
        self.found, self.tags = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.found += [v for name, v in attributes if name in ("src", "href", "srcset", "data")]


def test_without_results_every_figure_is_missing_and_the_page_says_how_to_measure_it(edition):
    text = words(page(edition))
    assert text.count("not measured") == len(PHASE_1)
    assert "craft2 bench queue" in text
    assert "craft2 bench group-commit" in text
    assert "Nothing was measured yet." in text
    assert "None: nothing was measured with several numbers of clients" in text
    assert "Exercises: 1 of 2 passed" in text
    assert "Predictions: 1 of 2 recorded" in text


def test_numbers_stand_beside_the_reported_ones(edition):
    Results(edition.root / "results").append(
        [queue_row(), queue_row(clients=64, messages_per_s=400.0, success_ratio=0.5)]
    )
    text = words(page(edition))
    assert "about 800 messages/s 1,600 messages/s queue, 1 client, fsync every message 2 ×" in text
    assert "0.70 ms on average 0.5 ms, the median" in text
    assert "98.7 % 50 % queue, 64 clients" in text
    assert "c, 2 cores, 8 GB, ext4, k, Python 3.11; a sync takes 0.30 ms" in text
    assert "Nothing was measured" not in text


def test_the_page_is_whole_in_itself_and_escapes_what_it_is_given(edition):
    evil = "<script>alert(1)</script>"
    Results(edition.root / "results").append(
        [queue_row(clients=n, scenario=evil, backend=f"queue,{evil}") for n in (1, 4)]
    )
    text = page(edition)
    links = Links(text)
    assert len(links.found) == 2
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links.found)
    assert "script" not in links.tags
    assert "b" not in links.tags
    assert "expected <b>, got a & b" in words(text)
    assert "default-src 'none'" in text


def test_a_file_that_cannot_be_read_is_named_and_the_others_count(edition):
    store = Results(edition.root / "results")
    store.append([queue_row()])
    (store.path / "0-bad.parquet").write_bytes(b"torn")
    text = words(page(edition))
    assert "0-bad.parquet' cannot be read" in text
    assert "1,600 messages/s" in text


@pytest.mark.parametrize(
    "other",
    [
        {"acks": "written"},  # not safe: no comparison with a queue that is
        {"phase": 0},
        {"backend": "bare calls"},
    ],
)
def test_only_rows_of_the_same_promise_answer_a_figure(other):
    assert not any(line.yours for line in lines(PHASE_1, plain([queue_row(**other)])))


def test_what_is_missing_is_asked_for_once():
    found = lines(PHASE_1, plain([queue_row(clients=n) for n in (1, 20, 50, 100)]))
    missing = [line.name for line in found if not line.yours]
    assert missing[0] == "File per message, 200 clients"
    assert [what for _, what in to_measure(PHASE_1, found)] == [
        "measure_clients(Results(results_folder()), clients=(20, 50, 100, 200))",
        "craft2 bench group-commit",
    ]


def test_a_machine_is_named_once_with_the_median_of_its_syncs():
    one = plain([queue_row()])[0]["machine"]
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    some = [fields | {"fsync_ms": ms} for ms in (9.0, 0.1, 0.2)] + [fields | {"cpu": "other"}]
    assert [text.partition("; ")[2] for text in machines(some)] == [
        "a sync takes 0.20 ms",
        "a sync takes 0.30 ms",
    ]


def test_the_command_writes_a_page_or_says_why_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nowhere = CliRunner().invoke(app, ["report"])
    assert "there is no craft2.toml" in str(nowhere.exception)
    assert CliRunner().invoke(app, ["start", "w"]).exit_code == 0
    done = CliRunner().invoke(app, ["report", "w", "--out", "w"], catch_exceptions=False)
    assert done.exit_code == 0
    text = (tmp_path / "w" / "report.html").read_text()
    assert "Exercises: 0 of" in text
    assert "not started" in text
    with pytest.raises(Exception, match="cannot be written to"):
        write_report(Edition(tmp_path / "w"), tmp_path / "w" / "craft2.toml" / "x.html")
