"""Settings of a consumer that cannot be used."""

import pytest

from phase2_groups.consumer_config import BadConsumerConfig, ConsumerConfig


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_poll_interval_ms": 2**31}, "give a whole number from 1 to 2147483647"),
        ({"group_id": 5}, "group_id is 5: give a text or None"),
        ({"group_id": "g", "group_instance_id": 5}, "group_instance_id is 5: give a text or None"),
        ({"group_id": "a\udc80"}, "group_id is .* give a text or None"),
        ({"client_id": "a\udc80"}, "client_id is .* give a text"),
        ({"partition_assignment_strategy": 5}, "strategy is 5: give a tuple of names"),
        ({"partition_assignment_strategy": ([],)}, r"strategy names \[\]: there are range"),
        ({"client_id": None}, "client_id is None: give a text"),
        ({"client_id": "x" * 40_000}, "client_id has 40000 letters: give 32767 at most"),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_at_once(settings, words):
    with pytest.raises(BadConsumerConfig, match=words):
        ConsumerConfig(**settings)
