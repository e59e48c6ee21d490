"""Networks in several processes: the process group, its collectives, and the replicas.

Each process has one replica.
"""
