"""Speed and memory, side by side in one process, as ratios."""
