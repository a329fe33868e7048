"""Work on whole contexts and whole stores: export and import, backup, examination and removal."""
