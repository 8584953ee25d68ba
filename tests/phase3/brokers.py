"""What tests do to a broker that is alone, without asking it over a connection."""

from __future__ import annotations

from phase3_raft.metadata import topic_changes


def make_topic(broker, name, partitions, config=None):
    """Make a topic, at once."""
    topic_id = broker.new_id()
    records = topic_changes.create(broker.image, name, topic_id, partitions, 1, config or {})
    broker.metadata.write(records)


def delete_topic(broker, name):
    """Delete one."""
    broker.metadata.write(topic_changes.delete(broker.image, name))
