"""Benchmarks: each prints `PASS|FAIL name figure bar` and exits non-zero on a FAIL.

`INFO` lines have no bar.
"""
