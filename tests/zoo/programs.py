"""Running a network as one program: on JAX each operation by itself would be compiled, which takes
far longer."""


def as_one_program(backend, function):
    """The function, which takes a network first, compiled as a whole on JAX."""
    if backend.name != "jax":
        return function
    from flax import nnx

    return nnx.jit(function)
