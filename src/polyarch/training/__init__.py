"""What methods share: loop, capture, optimisers, schedules, augmentation, hypergradients, checkpoints."""
