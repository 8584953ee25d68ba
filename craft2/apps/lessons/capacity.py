"""How many disks, network ports and brokers a load needs: the sums that come before any cluster.

>>> plan = Load(messages_per_s=1_000_000, message_bytes=1_000, retention_days=7).plan()
>>> f"{plan.stored_tb:.0f} TB, {plan.stored_tb * 3 / 1000:.1f} PB in three copies"
'605 TB, 1.8 PB in three copies'
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_DAY_S = 86_400


@dataclass(frozen=True)
class Load:
    """What is asked for. compression: how many times smaller the messages become. readers: how
    often each message is read."""

    messages_per_s: float
    message_bytes: float
    retention_days: float
    replication: int = 3
    readers: int = 1
    compression: float = 1.0

    def plan(self, machine: Machine | None = None) -> Plan:
        """What it takes, of such machines."""
        machine = machine or Machine()
        mb_per_s = self.messages_per_s * self.message_bytes / self.compression / 1e6
        stored_tb = mb_per_s * _DAY_S * self.retention_days / 1e6
        on_disk_tb = stored_tb * self.replication
        network_in = mb_per_s * self.replication  # from producers, and to each follower
        network_out = mb_per_s * (self.replication - 1 + self.readers)
        needs = {
            "disk space": on_disk_tb / (machine.disk_tb * machine.disk_use),
            "disk writes": network_in / machine.disk_mb_per_s,
            "network in": network_in / machine.network_mb_per_s,
            "network out": network_out / machine.network_mb_per_s,
        }
        # 54.000000000000014 brokers are 54: floats carry some fifteen digits
        brokers = {name: math.ceil(round(value, 9)) for name, value in needs.items()}
        least = max(*brokers.values(), self.replication)
        return Plan(mb_per_s, stored_tb, on_disk_tb, network_in, network_out, brokers, least)


@dataclass(frozen=True)
class Machine:
    """What one broker has. disk_use, network_use: the share that may be used, so that there is room
    for a broker that dies and comes back."""

    disk_tb: float = 48.0
    disk_mb_per_s: float = 1_000.0
    network_gbit: float = 10.0
    disk_use: float = 0.7
    network_use: float = 0.6

    @property
    def network_mb_per_s(self) -> float:
        """In each direction, of what may be used."""
        return self.network_gbit * 1000 / 8 * self.network_use


@dataclass(frozen=True)
class Plan:
    """brokers: how many each of the needs asks for. least: the most of these."""

    mb_per_s: float
    stored_tb: float
    on_disk_tb: float
    network_in_mb_per_s: float
    network_out_mb_per_s: float
    brokers: dict[str, int]
    least: int

    def show(self) -> None:
        """Print it."""
        print(f"from producers      {self.mb_per_s:>10,.0f} MB/s")
        print(f"kept                {self.stored_tb:>10,.1f} TB, one copy")
        print(f"on all disks        {self.on_disk_tb:>10,.1f} TB")
        print(f"network, in         {self.network_in_mb_per_s:>10,.0f} MB/s over all brokers")
        print(f"network, out        {self.network_out_mb_per_s:>10,.0f} MB/s over all brokers")
        for name, count in self.brokers.items():
            print(f"brokers for {name:<12}{count:>6}")
        print(f"so at least         {self.least:>10} brokers")
