"""A broker for real clients to judge: ours, or the one that CRAFT2_TEST_BOOTSTRAP names.

Against Apache Kafka the same tests must pass: only then does what they ask for mean anything.
"""

from __future__ import annotations

import os
import uuid

import pytest

from phase3_raft.local_broker import LocalBroker


@pytest.fixture(scope="session")
def bootstrap():
    """Where the broker is."""
    other = os.environ.get("CRAFT2_TEST_BOOTSTRAP")
    if other:
        yield other
        return
    with LocalBroker(options=("--group-initial-rebalance-delay-ms", "0")) as broker:
        yield broker.bootstrap_servers
        assert broker.errors() == ""


@pytest.fixture
def name():
    """A name that nobody had before, for a topic or a group."""
    return f"t-{uuid.uuid4().hex[:12]}"
