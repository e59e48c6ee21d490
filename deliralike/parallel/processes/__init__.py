"""Networks in several processes: the process group, what it exchanges, and the replica of each
process.
"""
