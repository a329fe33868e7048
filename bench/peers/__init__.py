"""Compare quire with its peers: the same workloads, in separate environments, with the raw floor in the same run."""
