"""PyTorch's own loops."""

from contextlib import contextmanager

import torch

from deliralike import nest
from tests.strangers import hand


def tensors(batch):
    return nest.map(torch.from_numpy, batch)


class Hand(hand.Hand):
    def optimizer(self, network):
        """A list for one: lazy layers have parameters after the first call."""
        network.zero_grad()
        return []

    def loss(self, network, batch):
        return self.case.loss(network, *tensors(batch))

    def step(self, network, batch, optimizers):
        network.train()
        loss = self.loss(network, batch)
        if not optimizers:
            optimizers.append(torch.optim.SGD(network.parameters(), 0.1, momentum=0.9))
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        return loss.item()

    @contextmanager
    def evaluating(self, network):
        network.eval()
        with torch.no_grad():
            yield

    def predicted(self, network, x):
        return nest.map(torch.Tensor.numpy, self.case.call(network, tensors(x)))

    def copy_weights(self, other):
        other.load_state_dict(self.network.state_dict())

    def attributes(self, network):
        """What the modules hold besides tensors: names, types, and modes."""
        network.train()
        found = {}
        for path, module in network.named_modules():
            names = {n: type(v).__name__ for n, v in vars(module).items()}
            found[path] = (
                names,
                len(module._forward_hooks),
                len(module._forward_pre_hooks),
            )
        for name, parameter in network.named_parameters():
            found[f"{name}:"] = parameter.requires_grad, parameter.is_leaf
        return found
