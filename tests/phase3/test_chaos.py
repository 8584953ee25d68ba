"""Real brokers are broken for two minutes under real clients, and keep every promise."""

from __future__ import annotations

import json
import subprocess
import sys

CHAOS = [sys.executable, "-P", "-m", "craft2.apps.cli", "chaos"]
LIMIT_S = 900  # a busy machine; a run that hangs ends before the tests do


def chaos(*options):
    done = subprocess.run([*CHAOS, *options], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout + done.stderr


def test_two_minutes_of_every_fault_that_this_machine_can_break_no_promise(tmp_path):
    """How many kinds there is time for, the machine decides; none may be left out in silence."""
    out = tmp_path / "out"
    data = ("--data-dir", tmp_path / "data", "--out", out)
    status, said = chaos("--minutes", "2", "--seed", "1", *data)
    assert status == 0, said
    assert "no promise was broken" in said
    facts = json.loads((out / "chaos.json").read_text())
    kinds = {*facts["struck"], *facts["not_reached"], *facts["left_out"]}
    assert len(kinds) == 13
    assert len(facts["struck"]) >= 5
    assert (out / "report.html").exists()


def test_a_cluster_that_loses_everything_is_found_out(tmp_path):
    data = ("--data-dir", tmp_path / "data", "--out", tmp_path)
    status, said = chaos("--minutes", "0.1", "--seed", "1", "--faults", "wipe", *data)
    assert status == 1, said
    assert "lost-write" in said
    assert "no promise was broken" not in said
    assert (tmp_path / "history.jsonl").stat().st_size > 0


def test_without_root_relays_stand_between_the_brokers_and_what_is_left_out_has_its_reason(
    tmp_path,
):
    faults = "cut-link,cut-from-brokers,unplug,full-disk"
    status, said = chaos(
        *("--minutes", "0.3", "--seed", "2", "--no-root", "--faults", faults),
        *("--data-dir", tmp_path),
    )
    assert status == 0, said
    assert "a relay does not know who comes" in said
    for fault in ("cut-from-brokers", "full-disk"):
        assert f"left out: {fault}, " in said
    assert "the link between brokers" in said
