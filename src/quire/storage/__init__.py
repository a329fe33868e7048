"""Storage: the protocol of a backend (`base`), the backends, and opening one by URL (`urls`)."""
