"""quire beside its peers: the same workloads, in environments of their own, with the raw floor in the same run."""
