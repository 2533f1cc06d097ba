"""Partition: which client holds which images.

``settings`` what can be chosen; ``schemes`` a scheme by name, from ``categories`` (what it divides by), ``plans`` (how
many of each a client gets) and ``deal`` (which ones; repair), ``iterative`` apart; ``local`` test images; ``pools``
labelled and unlabelled; ``skew`` cameras; ``division`` all of it on a data set; ``stage`` from disk to disk.
"""

from tasks.data.partition.settings import PartitionSettings
from tasks.data.partition.stage import partition

__all__ = ["PartitionSettings", "partition"]
