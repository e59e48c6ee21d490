"""Losses that tests of several rooms train with."""


def cross_entropy(network, x, labels):
    return network.nn.cross_entropy(network(x), labels)


def mean_square_error(network, x, y):
    return network.nn.mse_loss(network(x), y)


def mean_square(network, x):
    y = network(x)
    return network.nn.mean(y * y)
