"""PyTorch's own loops."""

import torch

from deliralike import nest
from deliralike.conformance import LEVELS
from tests.strangers.gauntlet import EPOCHS, halves


def tensors(batch):
    return nest.map(torch.from_numpy, batch)


class Hand:
    levels = LEVELS

    def __init__(self, case):
        self.case = case

    def trained(self, evaluates=False):
        """A network trained by hand, with validation after each epoch or not."""
        self.network, self.losses = self.case.make(), []
        optimizer = None
        for _ in range(EPOCHS):
            for batch in halves(self.case.batch):
                self.losses.append(self._step(self.network, batch, optimizer))
                optimizer = self.optimizer
            if evaluates:
                self.evaluated(self.network)
        one = Hand(self.case)
        one.network, one.losses = self.network, self.losses
        return one

    def _step(self, network, batch, optimizer):
        network.train()
        loss = self.case.loss(network, *tensors(batch))
        if optimizer is None:  # lazy layers have parameters now
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        self.optimizer = optimizer
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def go_on(self, network):
        network.zero_grad()
        return [self._step(network, batch, None) for batch in halves(self.case.batch)]

    def outputs(self, network):
        """The predictions of each batch in evaluation mode."""
        network.eval()
        inputs = [tensors(batch)[0] for batch in halves(self.case.batch)]
        with torch.no_grad():
            return [
                nest.map(torch.Tensor.numpy, self.case.call(network, x)) for x in inputs
            ]

    def evaluated(self, network):
        network.eval()
        with torch.no_grad():
            losses = [
                self.case.loss(network, *tensors(b)).item()
                for b in halves(self.case.batch)
            ]
        return sum(losses) / 2

    def other_with_its_weights(self):
        other = self.case.make()
        self.outputs(other)
        other.load_state_dict(self.network.state_dict())
        return other

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
