"""What the queue and the log need: few imports, little memory, whatever passes through."""

import os
import subprocess
import sys

import pytest

from craft2.record_batch import encode_values
from phase1_file_queue.partition_log import PartitionLog

RUN = """
import sys, tempfile, threading
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.queue_consumer import QueueConsumer

root = tempfile.mkdtemp(dir=sys.argv[1])
with PartitionedQueue(root + "/q", 2, fsync=False) as queue:
    for i in range(400):
        queue.produce(str(i), "x" * 100_000)
    with QueueConsumer(root + "/q", "g") as consumer:
        while consumer.poll(20):
            pass
config = LogConfig(flush_policy="never", segment_bytes=50_000_000)
with PartitionLog(root + "/log-0", config) as log:
    for size in (1, 100, 1000, 30_000):                       # many lengths, small and large
        for i in range(200):
            log.append_durably(encode_values([b"v" * (size + i + n % 7) for n in range(30)]))
    for _ in log.batches():
        pass
    for record in log.records(log.end_offset - 500):
        pass
heavy = {"pandas", "pyarrow", "numpy", "matplotlib", "pyspark"} & set(sys.modules)
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(" ".join(sorted(heavy)) or "none", peak // 1024)
"""


def test_no_heavy_import_and_under_100_mb(tmp_path):
    if not sys.platform.startswith("linux"):
        pytest.skip("reads the peak memory from /proc, which only Linux has")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=True
    )
    heavy, peak_mb = done.stdout.split()
    assert heavy == "none"
    assert int(peak_mb) < 100


def test_an_open_log_takes_six_file_descriptors(tmp_path):
    """The segment, three maps, two locks: a broker with 2,000 partitions has to live with it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("counts descriptors in /proc, which only Linux has")

    def taken():
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        there = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sum(str(tmp_path) in path for path in there)

    with PartitionLog(tmp_path / "t-0") as log:
        log.append_as_leader(encode_values([b"x"]), 0)
        assert 0 < taken() <= 6
    assert taken() == 0
