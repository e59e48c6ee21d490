"""What the loops by hand of all frameworks have in common."""

from deliralike.conformance import LEVELS
from tests.strangers.gauntlet import EPOCHS, halves


class Hand:
    """A framework's own loops over the network of a case.

    Attributes:
        network, losses: What `trained` gives has them.
    """

    levels = LEVELS

    def __init__(self, case):
        self.case = case

    def trained(self, evaluates=False):
        """A network trained by hand, with validation after each epoch or not."""
        one = type(self)(self.case)
        one.network, one.losses = self.case.make(), []
        optimizer = self.optimizer(one.network)
        for _ in range(EPOCHS):
            one.losses += one.epoch(one.network, optimizer)
            if evaluates:
                one.evaluated(one.network)
        return one

    def epoch(self, network, optimizer):
        """The losses of one step with each batch."""
        return [
            self.step(network, batch, optimizer) for batch in halves(self.case.batch)
        ]

    def go_on(self, network):
        """The losses of another epoch."""
        return self.epoch(network, self.optimizer(network))

    def outputs(self, network):
        """The predictions of each batch in evaluation mode."""
        with self.evaluating(network):
            return [
                self.predicted(network, batch[0]) for batch in halves(self.case.batch)
            ]

    def evaluated(self, network):
        """The mean loss in evaluation mode."""
        with self.evaluating(network):
            losses = [self.loss(network, batch) for batch in halves(self.case.batch)]
        return sum(float(loss) for loss in losses) / 2

    def other_with_its_weights(self):
        """Another network of the case with the weights of the trained one."""
        other = self.case.make()
        self.outputs(other)
        self.copy_weights(other)
        return other
