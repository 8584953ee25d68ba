"""Whole clusters in one thread, from one seed: `craft2 raft simulate`."""
