"""Work on whole contexts and whole stores: copying out and in, backing up, examining, letting go."""
