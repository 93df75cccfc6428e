"""Bugs in real packages: find them, repair them, judged by the packages' own tests."""
