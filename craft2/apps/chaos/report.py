"""What a run showed, in words, as a page and as JSON."""

from __future__ import annotations

from pathlib import Path

from craft2.apps.chaos.run import Outcome, alike


def figures(outcome: Outcome) -> dict[str, str]:
    """The numbers of a run by their names."""
    counts = outcome.judged["as everybody saw it"].counts
    anomalies = {name for report in outcome.judged.values() for name in report.anomalies}
    return {
        "sent": f"{counts['sent']:,}",
        "acknowledged": f"{counts['acknowledged']:,}",
        "failed": f"{len(outcome.failed):,}",
        "no answer": f"{counts['unknown'] - len(outcome.failed):,}",
        "read": f"{counts['polled']:,}",
        "duplicates in the logs": f"{counts['duplicates']:,}",
        "anomalies": ", ".join(sorted(anomalies)) or "none",
        "longest without an acknowledgement": _gap(outcome.timeline.longest_gap()),
        "the same, of one partition": _gap(outcome.timeline.longest_gap_of_one()),
        "changes of leader": f"{max(0, len(outcome.timeline.leaders) - outcome.plan.partitions):,}",
    }


def _gap(found: tuple[float, float]) -> str:
    return f"{found[1]:.1f} s, from {found[0]:.1f} s on"


def summary(outcome: Outcome) -> list[str]:
    """For the terminal."""
    lines = ["", *(f"{name:36}{value}" for name, value in figures(outcome).items())]
    lines += ["", "faults: " + ", ".join(f"{n} {name}" for name, n in outcome.struck.items())]
    lines += [f"left out: {name}, {why}" for name, why in outcome.left_out.items()]
    if outcome.errors:
        told = ", ".join(f"{count} {name}" for name, count in outcome.errors.most_common())
        lines.append(f"clients were told: {told}")
    for number, said in outcome.complaints.items():
        for line, count in alike(said).items():
            lines.append(f"broker {number} said: {line}" + (f" ({count} like it)" * (count > 1)))
    lines += ["", *(outcome.troubles or ["no promise was broken"])]
    return lines


def write_report(outcome: Outcome, folder: Path) -> Path:
    return folder
