"""What a look at a supernet must leave as it was."""

from contextlib import contextmanager

import torch

from polyarch.spaces.layers import BatchNorm


def state(supernet):
    tensors = {name: value.detach().clone() for name, value in supernet.state_dict().items()}
    modes = {name: module.training for name, module in supernet.named_modules()}
    rules = {name: m.statistics for name, m in supernet.named_modules() if isinstance(m, BatchNorm)}
    hooks = sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in supernet.modules())
    return tensors, (modes, rules, hooks, torch.get_rng_state().tolist(), torch.is_grad_enabled())


@contextmanager
def unchanged(supernet):
    """Mixes modes of all kinds; afterwards everything must be as it was, to the bit."""
    for number, module in enumerate(supernet.modules()):
        module.training = number % 3 == 0
    tensors, others = state(supernet)
    yield
    after, others_after = state(supernet)
    assert others_after == others
    assert tensors.keys() == after.keys()
    for name, value in tensors.items():
        assert torch.equal(value, after[name]), name
