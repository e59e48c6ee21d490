"""How replicas go wrong, written out by hand: nothing here is shared with what explains it.

Mistakes of statistics stand in the layer, those of gradients in the optimizer's hooks, those of the
loss in the function that each replica computes.
"""

from deliralike import random
from deliralike.optim.loss import as_loss
from deliralike.parallel import AccumulateGradients, CopyParameters, current_replica, in_replicas
from tests.planted.planting import with_methods

# Losses
# -----------------------------------------------------------------------------


def counting(loss, parts):
    """A loss in which each replica's own mean counts `parts(sizes)`, instead of what it should."""
    whole = as_loss(loss).whole

    def part(network, *share):
        here = current_replica()
        mean = whole(network, *share)
        if here is None:
            return mean
        return mean * _at(here.index, parts(here.sizes))

    return in_replicas(part, "sum")


def _at(index, numbers):
    """The number at an index, which a compiled program may not know yet."""
    found = 0.0
    for place, number in enumerate(numbers):
        found = found + (index == place) * float(number)
    return found


def drawing(function, begin):
    """A loss function whose masks are those of the samples from number ``begin(replica)`` on."""

    def drawn(network, *share):
        here = current_replica()
        if here is None:
            return function(network, *share)
        with random.shifted(begin(here) - here.first_sample):
            return function(network, *share)

    return drawn


# Statistics over all replicas
# -----------------------------------------------------------------------------


def batch_norm(statistics):
    """Plant a batch normalisation over replicas with other statistics.

    ``statistics(here, nn, x, own, counts)`` gives the mean, the biased variance, and the count of
    values by which the running variance is made unbiased; ``own`` is the share's count of values,
    and ``counts`` are those of all replicas.
    """

    def over_replicas(self, x, count, here):
        counts = here.exchange("counts of the planted batch norm", count)
        mean, var, told = statistics(here, self.nn, x, count, counts)
        y = self.nn.batch_norm(x, mean, var, self.weight, self.bias, self.eps)
        return y, mean, var, told

    return with_methods("bn", _over_replicas=over_replicas)


def _of_channels(nn, x):
    return nn.sum(x, (0, 2, 3))


def _squares(nn, x, mean):
    centred = x - nn.reshape(mean, (1, -1, 1, 1))
    return nn.sum(centred * centred, (0, 2, 3))


def forward_alone(here, nn, x, own, counts):
    """No gradient comes back through the other replicas' part of the sums."""

    def total(part, what):
        constant = nn.stop_gradient(part)
        return part + nn.stop_gradient(here.all_sum(constant, what) - constant)

    mean = total(_of_channels(nn, x), "sum") / sum(counts)
    var = total(_squares(nn, x, mean), "squares") / sum(counts)
    return mean, var, sum(counts)


def mean_of_statistics(here, nn, x, own, counts):
    """The mean over replicas of each one's statistics, however large its share."""
    mean = here.all_sum(_of_channels(nn, x) / own, "mean") / len(counts)
    var = here.all_sum(_squares(nn, x, mean) / own, "variance") / len(counts)
    return mean, var, sum(counts)


def right_statistics(here, nn, x, own, counts):
    """Those of the whole batch."""
    mean = here.all_sum(_of_channels(nn, x), "sum") / sum(counts)
    var = here.all_sum(_squares(nn, x, mean), "squares") / sum(counts)
    return mean, var, sum(counts)


# Hooks of optimizers
# -----------------------------------------------------------------------------


def with_hooks(network, before, after=CopyParameters):
    """The replicated network, whose optimizers begin and end with hooks made from the network."""

    def update_hooks(parallelism):
        return [before(parallelism.network)], [after(parallelism.network)]

    def refuse_nothing(parallelism):
        """Replicas may be left behind."""

    return with_parallelism(
        network, update_hooks=update_hooks, refuse_stale_replicas=refuse_nothing
    )


def with_parallelism(network, **methods):
    """The replicated network, with other methods of what computes it in parallel."""
    right = type(network.parallelism)
    return with_class(network, _parallelism=type(right.__name__, (right,), methods))


def with_class(network, **attributes):
    """The replicated network, of a class with other attributes."""
    right = type(network)
    network.__class__ = type(right)(right.__name__, (right,), attributes)
    return network


class PlainSum(AccumulateGradients):
    """Adds the gradients of all replicas; a mistake changes what is added."""

    def __call__(self, optimizer, gradients):
        parts = [gradients, *optimizer.replica_gradients()]
        parts = self.mistaken(optimizer, parts)
        total = dict(parts[0])
        for part in parts[1:]:
            for name, gradient in part.items():
                if gradient is not None:
                    total[name] = self.add(total[name], gradient)
        return total

    def mistaken(self, optimizer, parts):
        return parts

    def add(self, one, other):
        return self.network.backend.add(one, other, self.network.device_name)


def changed(gradients, change):
    """The gradients, each changed where there is one."""
    found = {}
    for name, gradient in gradients.items():
        found[name] = None if gradient is None else change(gradient)
    return found


class Weighting(PlainSum):
    """Each replica's gradient counts a number: `factors` gives them for so many replicas."""

    def __init__(self, network, factors):
        super().__init__(network)
        self.factors = factors

    def mistaken(self, optimizer, parts):
        factors = self.factors(len(parts))
        pairs = zip(parts, factors, strict=True)
        return [changed(part, lambda g, by=factor: g * by) for part, factor in pairs]


class EachHooked(PlainSum):
    """What should have come after the sum is done to each replica's gradients before it."""

    def __init__(self, network, later):
        super().__init__(network)
        self.later = later

    def mistaken(self, optimizer, parts):
        for hook in self.later:
            parts = [hook(optimizer, part) for part in parts]
        return parts


class LeftBehind(CopyParameters):
    """Replicas keep the parameters that they had when the optimizer was made."""

    def __init__(self, network):
        super().__init__(network)
        slots = network.neutral_slots()
        self.old = {name: slot.read() for name, slot in slots.items() if slot.is_parameter}

    def __call__(self, optimizer):
        super().__call__(optimizer)  # the books are kept
        for replica in self.network.replicas[1:]:
            slots = replica.neutral_slots()
            for name, value in self.old.items():
                slots[name].write(value)
