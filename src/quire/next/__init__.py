"""The parts that are built again. Each takes the place of an old one when it is complete."""
