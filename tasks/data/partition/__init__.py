"""Partition: which client holds which images.

``settings``: the options. ``schemes``: a scheme by name, built from ``strata`` (what a scheme divides),
``allocations`` (how many images of each stratum a client gets) and ``assignment`` (which images; repair);
``iterative`` works image by image. ``local_test``: test images of the clients. ``pools``: labelled and unlabelled
images. ``feature_skew``: parameters of each client's feature skew. ``participation``: sites that take no part in
training. ``divide``: all of it on a data set. ``stage``: from disk to disk.
"""

from tasks.data.partition.settings import PartitionSettings
from tasks.data.partition.stage import partition

__all__ = ["PartitionSettings", "partition"]
