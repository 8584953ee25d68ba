"""The bytes that members exchange are those of Kafka's Java client."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phase2_groups.assignors import Subscription
from phase2_groups.consumer_protocol import (
    BadConsumerProtocol,
    decode_assignment,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)

WIRE = json.loads((Path(__file__).parents[1] / "data/assignors/vectors.json").read_text())["wire"]


def subscription_of(case):
    owned = tuple((topic, number) for topic, number in case["owned"])
    return Subscription(tuple(case["topics"]), owned, case["generation"])


@pytest.mark.parametrize("case", WIRE)
def test_writes_the_bytes_of_the_java_client(case):
    mine, version = subscription_of(case), case["version"]
    sticky = bytes.fromhex(case["sticky"]) if case["user_data"] else None
    assert encode_subscription(mine, version, sticky, case["rack"]).hex() == case["subscription"]
    other = b"\x01\x02" if case["user_data"] else None
    assert encode_assignment(mine.owned, version, other).hex() == case["assignment"]


@pytest.mark.parametrize("case", WIRE)
def test_reads_the_bytes_of_the_java_client(case):
    mine, version = subscription_of(case), case["version"]
    read = decode_subscription(bytes.fromhex(case["subscription"]))
    assert read.version == version
    assert set(read.subscription.topics) == set(mine.topics)
    assert set(read.subscription.owned) == (set(mine.owned) if version >= 1 else set())
    assert read.subscription.generation == (mine.generation if version >= 2 else -1)
    assert read.rack_id == (case["rack"] if version >= 3 else None)
    assert sorted(decode_assignment(bytes.fromhex(case["assignment"])).partitions) == sorted(
        mine.owned
    )


@pytest.mark.parametrize("case", WIRE)
def test_sticky_user_data_says_what_the_java_client_says(case):
    """Its topics come in the order of a Java hash map, so only what they say can be compared."""
    mine = subscription_of(case)
    theirs = bytes.fromhex(case["sticky"])
    owned, generation = decode_sticky_user_data(theirs)
    assert (sorted(owned), generation) == (sorted(mine.owned), mine.generation)
    assert sorted(encode_sticky_user_data(mine.owned, mine.generation)) == sorted(theirs)
    assert decode_sticky_user_data(theirs[:-4]) == (owned, -1)


def test_a_newer_version_is_read_as_far_as_it_is_known():
    mine = Subscription(("t",), (("t", 1),), 7)
    newer = b"\x00\x09" + encode_subscription(mine, rack_id="r")[2:] + b"something new"
    assert decode_subscription(newer) == (9, mine, None, "r")


@given(st.data())
def test_bytes_that_end_too_early_are_an_error_of_our_own(data):
    case = data.draw(st.sampled_from(WIRE))
    for name, decode in (("subscription", decode_subscription), ("assignment", decode_assignment)):
        whole = bytes.fromhex(case[name])
        with pytest.raises(BadConsumerProtocol, match="more bytes were to come"):
            decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(noise):
    for decode in (decode_subscription, decode_assignment, decode_sticky_user_data):
        with contextlib.suppress(BadConsumerProtocol):
            decode(noise)
