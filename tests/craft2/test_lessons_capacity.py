"""The sums of notebook 30."""

from __future__ import annotations

import pytest

from craft2.apps.lessons.capacity import Load, Machine


def test_a_product_that_floats_get_slightly_wrong_needs_no_broker_more():
    plan = Load(messages_per_s=1e6, message_bytes=1_000, retention_days=7).plan()
    assert plan.on_disk_tb / (48 * 0.7) != 54  # 54.000000000000014
    assert plan.brokers["disk space"] == plan.least == 54


@pytest.mark.parametrize(("disk_tb", "brokers"), [(1_814.4, 1), (1_814.3, 2)])
def test_what_is_too_much_by_little_needs_one_more(disk_tb, brokers):
    machine = Machine(disk_tb=disk_tb, disk_use=1.0)
    assert Load(1e6, 1_000, 7).plan(machine).brokers["disk space"] == brokers
