"""What the processes of the tests do: programs written for Chainer and ChainerMN."""

import numpy as np

from deliralike import backends
from deliralike.backends.chainer.arrays import F, chainer, chainermn
from deliralike.data import Loader
from deliralike.errors import ArgumentError
from deliralike.training import Trainer
from deliralike.training.metrics import Accuracy
from tests.losses import cross_entropy

L = chainer.links
SAMPLES, BATCH, EPOCHS = (
    29,
    7,
    2,
)  # the last batch has one sample: fewer than there are processes
chainer.disable_experimental_feature_warning = True


def samples(count=SAMPLES):
    generator = np.random.default_rng(3)
    return generator.normal(size=(count, 1, 9, 7)), generator.integers(0, 4, count)


def dataset(count=SAMPLES):
    return chainer.datasets.TupleDataset(*samples(count))


class Net(chainer.Chain):
    """Convolution, batch normalisation, linear; its start values are those of NumPy's generator."""

    def __init__(self, seed):
        super().__init__()
        np.random.seed(seed)
        with self.init_scope(), chainer.using_config("dtype", np.float64):
            self.conv = L.Convolution2D(1, 3, 3)
            self.norm = L.BatchNormalization(3)
            self.unused = L.Linear(2, 2)
            self.last = L.Linear(3 * 7 * 5, 4)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.conv(x))))


def optimizer():
    return chainer.optimizers.MomentumSGD(
        lr=0.1
    )  # Adam would divide rounding by rounding


def hook():
    return chainer.optimizer_hooks.GradientClipping(0.5)


def trained(network, native, train, callbacks=()):
    """A run of the trainer with a native network and optimizer."""
    trainer = Trainer(
        network,
        network.backend.wrap_optimizer(native, network),
        metrics={"accuracy": Accuracy()},
        callbacks=callbacks,
        seed=5,
    )
    history = trainer.fit(train, samples(11), epochs=EPOCHS)
    return {
        "losses": [float(loss) for loss in history.losses],
        "samples": [step.samples for step in history.steps],
        "metrics": [epoch.held_out for epoch in history.epochs],
        "state": {
            name: value.tolist()
            for name, value in trainer.network.neutral_state().items()
        },
    }


def alone():
    """The program in one process, without ChainerMN."""
    model, native = Net(0), optimizer()
    native.setup(model).add_hook(hook())
    return trained(backends.wrap(model), native, Loader(dataset(), BATCH, seed=5))


def program(processes, data):
    """The program in several processes, with what ChainerMN has for it; their own start values
    differ."""
    comm = chainermn.create_communicator("naive")
    model = chainermn.links.create_mnbn_model(Net(comm.rank), comm)
    native = chainermn.create_multi_node_optimizer(optimizer(), comm).setup(model)
    native.add_hook(hook())
    network = backends.DistributedDataParallel(model, processes, buffers="sync")
    return trained(network, native, _data(data, comm))


def _data(kind, comm):
    if kind == "synchronized":
        return chainermn.iterators.create_synchronized_iterator(
            _iterator(dataset()), comm
        )
    return chainermn.iterators.create_multi_node_iterator(
        None if comm.rank else _iterator(dataset()), comm
    )


def _iterator(data, **options):
    return chainer.iterators.SerialIterator(data, BATCH, **options)


def several(processes):
    """What two processes can tell in one start: each function's answer by its name."""
    return {
        function.__name__: function(processes)
        for function in (
            micro_batches,
            first_batch,
            refused,
            mean_of_gradients,
            batch_norm,
        )
    }


def micro_batches(processes):
    """How often gradients were added in six micro-batches, three of which make an update; and the
    updates."""
    network = backends.DistributedDataParallel(Net(0), processes, in_backward={})
    made = network.backend.wrap_optimizer(optimizer(), network)
    made.accumulate = 3
    before = processes.collectives["all_reduce"]
    with network.training_mode(True):
        for _ in range(6):
            made.update(cross_entropy, *samples(4))
    return [processes.collectives["all_reduce"] - before, made.steps]


def first_batch(processes):
    """The parameters that the first update moves, by ChainerMN itself and here."""
    comm, moved = chainermn.create_communicator("naive"), []
    for here in (False, True):
        model, (x, y) = Net(0), samples(4)
        native = chainermn.create_multi_node_optimizer(optimizer(), comm).setup(model)
        before = {
            name: parameter.array.copy() for name, parameter in model.namedparams()
        }
        if here:
            network = backends.DistributedDataParallel(model, processes)
            with network.training_mode(True):
                network.backend.wrap_optimizer(native, network).update(
                    cross_entropy, x, y
                )
        else:
            native.update(
                lambda model=model, x=x, y=y: F.softmax_cross_entropy(model(x), y)
            )
        moved.append(
            sorted(
                n
                for n, parameter in model.namedparams()
                if (parameter.array != before[n]).any()
            )
        )
    return moved


def refused(processes):
    """The error for an optimizer of all processes and a network of one."""
    native = chainermn.create_multi_node_optimizer(
        optimizer(), chainermn.create_communicator("naive")
    )
    try:
        backends.get("chainer").wrap_optimizer(native, backends.wrap(Net(0)))
    except ArgumentError as error:
        return str(error)


def mean_of_gradients(processes):
    """ChainerMN's mean of a gradient whose memory is not in C order, and of one that is."""
    comm, means = chainermn.create_communicator("naive"), []
    for order in "FC":
        link = L.Linear(3, 2, nobias=True)
        link.W.grad = np.asarray(
            np.arange(6, dtype=np.float32).reshape(2, 3) + processes.rank, order=order
        )
        comm.multi_node_mean_grad(link)
        means.append(link.W.grad.tolist())
    return means


def batch_norm(processes):
    """The neutral names of a batch norm of ChainerMN's without gamma, and how often it calls a link
    hook."""
    hook = chainer.link_hooks.TimerHook()
    link = chainermn.links.create_mnbn_model(
        L.BatchNormalization(3, use_gamma=False), chainermn.create_communicator("naive")
    )
    link.add_hook(hook)
    link(np.ones((2, 3), np.float32))
    return [list(backends.wrap(link).neutral_state()), len(hook.call_history)]
