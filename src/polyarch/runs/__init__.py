"""The run folder: everything needed to resume, repeat, look at and use a search."""
