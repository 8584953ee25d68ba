"""What a run showed: in words, as a page, as JSON, and its history for whoever wants to look."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2

from craft2.apps.chaos.faults import FAULTS
from craft2.apps.chaos.picture import timeline_picture
from craft2.apps.chaos.run import SEEN, Outcome, alike

PAGE, PICTURE, FACTS, HISTORY = "report.html", "timeline.png", "chaos.json", "history.jsonl"


def figures(outcome: Outcome) -> dict[str, str]:
    """The numbers of a run by their names."""
    counts = outcome.judged[SEEN].counts
    anomalies = {name for report in outcome.judged.values() for name in report.anomalies}
    timeline = outcome.timeline
    return {
        "sent": f"{counts['sent']:,}",
        "acknowledged": f"{counts['acknowledged']:,}",
        "failed": f"{len(outcome.failed):,}",
        "without an answer": f"{counts['unknown'] - len(outcome.failed):,}",
        "read by the group and a last reader": f"{counts['polled']:,}",
        "duplicates in the logs": f"{counts['duplicates']:,}",
        "anomalies": ", ".join(sorted(anomalies)) or "none",
        "longest without an acknowledgement": _gap(timeline.longest_gap()),
        "the same, of one partition": _gap(timeline.longest_gap_of_one()),
        "changes of leader": f"{max(0, len(timeline.leaders) - outcome.plan.partitions):,}",
    }


def _gap(found: tuple[float, float]) -> str:
    return f"{found[1]:.1f} s, from {found[0]:.1f} s on"


def complaints(outcome: Outcome) -> list[tuple[int, str, int]]:
    """(broker, a line, how many like it): what brokers said, lines that differ in numbers once."""
    return [
        (number, line, count)
        for number, said in outcome.complaints.items()
        for line, count in alike(said).items()
    ]


def summary(outcome: Outcome) -> list[str]:
    """For the terminal."""
    lines = ["", *(f"{name:36}{value}" for name, value in figures(outcome).items()), ""]
    lines.append("faults: " + ", ".join(f"{n} {name}" for name, n in outcome.struck.items()))
    if outcome.not_reached:
        lines.append("no time for: " + ", ".join(outcome.not_reached))
    lines += [f"left out: {name}, {why}" for name, why in outcome.left_out.items()]
    if outcome.errors:
        told = ", ".join(f"{count} {name}" for name, count in outcome.errors.most_common())
        lines.append(f"clients were told: {told}")
    for number, line, count in complaints(outcome):
        lines.append(f"broker {number} said: {line}" + (f" ({count} like it)" * (count > 1)))
    return [*lines, "", *(outcome.troubles or ["no promise was broken"])]


def write_report(outcome: Outcome, folder: Path) -> Path:
    """Write a page, its picture, the facts and the history into a folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = outcome.plan
    title = f"Seed {plan.seed}, {plan.minutes:g} minutes"
    chart = timeline_picture(outcome.timeline, plan.brokers, title)
    chart.savefig(folder / PICTURE)
    (folder / FACTS).write_text(json.dumps(_facts(outcome), indent=1) + "\n")
    with (folder / HISTORY).open("w") as file:
        for operation in outcome.history:
            file.write(json.dumps(operation._asdict()) + "\n")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    encoded = base64.b64encode((folder / PICTURE).read_bytes()).decode()
    page = environment.get_template("chaos.html.jinja").render(
        title=title,
        outcome=outcome,
        figures=figures(outcome),
        faults=[(name, FAULTS[name][0], n) for name, n in outcome.struck.items()],
        complaints=complaints(outcome),
        picture=f"data:image/png;base64,{encoded}",
    )
    (folder / PAGE).write_text(page)
    return folder / PAGE


def _facts(outcome: Outcome) -> Mapping[str, Any]:
    timeline = outcome.timeline
    return {
        "plan": {name: _plain(value) for name, value in asdict(outcome.plan).items()},
        "ok": outcome.ok,
        "troubles": outcome.troubles,
        "figures": figures(outcome),
        "where": outcome.where,
        "struck": outcome.struck,
        "not_reached": outcome.not_reached,
        "left_out": outcome.left_out,
        "events": timeline.events,
        "faults": [asdict(one) for one in timeline.faults],
        "leaders": timeline.leaders,
        "acknowledged": sorted(timeline.acknowledged.items()),
        "consumed": sorted(timeline.consumed.items()),
        "failed": outcome.failed,
        "clients_were_told": outcome.errors,
        "complaints": complaints(outcome),
    }


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
