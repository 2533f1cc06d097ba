"""Benchmarks: ``make bench`` compares speed with hand-written loops and other frameworks; see also the scripts here."""
