"""Batch normalisation over all replicas, as layers of their own."""

from deliralike.nn.layers.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d


class SynchronizedBatchNorm1d(BatchNorm1d):
    """Batch normalisation of ``(batch, num_features[, length])`` over the shares of all replicas.

    Whatever the replicas do about other layers. Outside of replicas it is plain batch
    normalisation, with the same names and state. Better than flax's ``BatchNorm(axis_name=...)``:
    shares of different sizes and of one sample work, the variance is a sum of centred squares, and
    no ``pmap`` has to be written.

    Source: Ioffe and Szegedy 2015, arXiv 1502.03167; Peng et al. 2017, arXiv 1711.07240.
    """

    synchronised = True


class SynchronizedBatchNorm2d(BatchNorm2d):
    """Synchronized batch normalisation of ``(batch, num_features, height, width)``.

    See `SynchronizedBatchNorm1d`.
    """

    synchronised = True


class SynchronizedBatchNorm3d(BatchNorm3d):
    """Synchronized batch normalisation of ``(batch, num_features, depth, height, width)``.

    See `SynchronizedBatchNorm1d`.
    """

    synchronised = True
