"""What methods share: loop, capture, optimisers, streams of randomness, checkpoints, ranks."""
