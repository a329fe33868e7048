"""Stores that quire 0.1.0 wrote, and the test that later code reads them and answers as 0.1.0 did."""
