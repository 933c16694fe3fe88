"""One script a paper: runs its experiments and prints its figures beside ours."""
