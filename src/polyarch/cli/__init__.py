"""The command line: one file a verb, thin. Nothing here imports torch before a verb runs."""
