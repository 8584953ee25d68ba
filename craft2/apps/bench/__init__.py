"""Benchmarks: the harness, the results store, and the scenarios, one file each."""
