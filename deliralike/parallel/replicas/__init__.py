"""Several replicas of a network in one process."""
