import torch

torch.set_num_threads(1)  # small networks: threads cost more than they give, and tests may share the machine
