"""A chat service with quire: several worker processes and one store."""
