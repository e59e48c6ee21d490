"""What people get wrong in so small a network, and other ways to write it."""

from tests.score.case import Mistake, Right

MISTAKES = (
    Mistake(
        "default epsilon",
        "jax",
        (("epsilon=1e-5, ", ""),),
        ("norm",),
        (r"eps", r"1e-0?[56]"),
        True,
    ),
    Mistake(
        "bias of the last layer forgotten",
        "jax",
        (("    net.fc2.bias.set_value(array(reference.out.bias))\n", ""),),
        ("out.bias", "out"),
        (r"zero|\b0(\.0)?\b",),
        True,
    ),
    Mistake(
        "default epsilon",
        "chainer",
        (("eps=1e-5", "eps=1e-6"),),
        ("norm",),
        (r"eps", r"1e-0?[56]"),
        True,
    ),
)

RIGHT = (
    Right("as it is", "jax"),
    Right("activation of jax.numpy", "jax", (("nnx.tanh(", "jnp.tanh("),)),
    Right("as it is", "chainer"),
    Right(
        "registered in the other order",
        "chainer",
        (
            ("            self.l1 = L.Linear(6, 9)\n", ""),
            (
                "            self.l2 = L.Linear(9, 4)\n",
                "            self.l2 = L.Linear(9, 4)\n            self.l1 = L.Linear(6, 9)\n",
            ),
        ),
    ),
)
