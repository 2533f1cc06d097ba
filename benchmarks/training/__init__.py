"""The training workloads: their images, and the contestants beside ``fedscene run``."""
