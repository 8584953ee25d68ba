"""The transcripts in tests/data/raft are what the servers do."""

from __future__ import annotations

import pytest
from raft_transcripts import FOLDER, replay


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_servers_do_what_their_transcripts_say(path):
    text = path.read_text()
    assert replay(text) == text
