"""RNN, LSTM and GRU layers with PyTorch's names, gate order and two bias vectors."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.dropout import Dropout
from deliralike.nn.start import Shape, fan_in_uniform

_NONLINEARITIES = ("tanh", "relu")


class _Recurrent(Network):
    gates: int
    states: int
    layer: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.input_size = checks.positive(input_size, "input_size", name)
        self.hidden_size = checks.positive(hidden_size, "hidden_size", name)
        if not 0 <= proj_size < hidden_size:
            raise SettingError(
                f"{name}: proj_size={proj_size} must be below hidden_size={hidden_size}"
            )
        self.proj_size = proj_size
        self.num_layers = checks.positive(num_layers, "num_layers", name)
        Dropout.check_settings(dropout)
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bidirectional
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            width = input_size if layer == 0 else self.output_size * len(self.suffixes)
            for suffix in self.suffixes:
                self._add_parameters(f"_l{layer}{suffix}", width)
        # one for each gap between two layers, since each draws its own masks
        self.between = self.nn.ModuleList(
            [Dropout(dropout) for _ in range(num_layers - 1)]
        )

    def _add_parameters(self, suffix: str, width: int) -> None:
        start = fan_in_uniform(self.hidden_size)
        rows = self.gates * self.hidden_size
        setattr(self, f"weight_ih{suffix}", self.nn.Parameter((rows, width), start))
        setattr(
            self,
            f"weight_hh{suffix}",
            self.nn.Parameter((rows, self.output_size), start),
        )
        for name in ("bias_ih", "bias_hh"):
            bias = self.nn.Parameter((rows,), start) if self.bias else None
            setattr(self, f"{name}{suffix}", bias)
        if self.proj_size:
            projection = self.nn.Parameter((self.proj_size, self.hidden_size), start)
            setattr(self, f"weight_hr{suffix}", projection)

    @property
    def output_size(self) -> int:
        """The width of the outputs in one direction."""
        return self.proj_size or self.hidden_size

    @property
    def state_sizes(self) -> Shape:
        """The width of each state."""
        return (self.output_size, self.hidden_size)[: self.states]

    def outputs(self, x, lengths=None):
        """Return the outputs alone, also for sequences of several lengths.

        They are what PyTorch gives for packed sequences.

        Args:
            x: As for ``forward``.
            lengths: ``(batch,)``: the number of valid steps of each sequence; what comes after them
                changes nothing, and the outputs there are zero. None when all steps are valid.

        Raises:
            ShapeError: There is not one length for each sequence.
            IndexRangeError: A length is negative or more than the number of steps.
        """
        if lengths is None:
            return self(x)[0]
        nn = self.nn
        x, states = self._arrange(x, (None,) * self.states)
        self._check_lengths(lengths, x)
        steps = nn.unsqueeze(nn.arange(x.shape[0], like=lengths), 1)  # (time, 1)
        from_end = nn.expand_dims(lengths, 0) - 1 - steps  # (time, batch)
        index = nn.where(from_end >= 0, from_end, from_end * 0 + steps)
        index = nn.expand_dims(index, 2)  # (time, batch, 1)

        def reverse(y):
            return nn.take_along(y, nn.broadcast_to(index, y.shape), 0)

        y, _ = self._run(x, states, reverse)
        return self._restore(nn.where(nn.expand_dims(from_end >= 0, 2), y, 0.0))

    def _check_lengths(self, lengths, x) -> None:
        time, batch = x.shape[:2]
        if tuple(lengths.shape) != (batch,):
            raise ShapeError(
                f"{checks.where(self)}: got lengths of shape {tuple(lengths.shape)} for {batch} "
                f"sequences, wanted ({batch},)"
            )
        checks.whole_numbers(lengths, f"{checks.where(self)}: lengths")
        self.nn.checked(
            lengths, checks.InRange(time + 1, f"{checks.where(self)}: lengths")
        )

    def _run(
        self, x, states: tuple, reverse: Callable[[Any], Any]
    ) -> tuple[Any, tuple]:
        """Run all layers and directions; a state is ``(layers * directions, batch, hidden)``."""
        nn = self.nn
        last = []
        for layer in range(self.num_layers):
            if layer:
                x = self._dropped(x, self.between[layer - 1])
            first = layer * len(self.suffixes)
            y, state = self._direction(x, [s[first] for s in states], f"_l{layer}")
            last.append(state)
            if self.bidirectional:
                start = [s[first + 1] for s in states]
                backward, state = self._direction(
                    reverse(x), start, f"_l{layer}_reverse"
                )
                last.append(state)
                y = nn.concatenate([y, reverse(backward)], dim=-1)
            x = y
        return x, tuple(nn.stack(parts, dim=0) for parts in zip(*last, strict=True))

    def _run_whole(self, x, states: tuple) -> tuple[Any, tuple]:
        """The outputs and the last states, of sequences that are valid to their ends."""
        x, states = self._arrange(x, states)
        y, states = self._run(x, states, lambda y: self.nn.flip(y, 0))
        return self._restore(y), states

    def _dropped(self, x, dropout):
        """Apply dropout keyed by sample: the batch axis comes first while the mask is drawn."""
        batch_first = dropout(self.nn.permute(x, (1, 0, 2)))
        return self.nn.permute(batch_first, (1, 0, 2))

    def _direction(self, x, state: Sequence[Any], suffix: str) -> tuple[Any, tuple]:
        names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
        if self.proj_size:
            names.append("weight_hr")
        parameters = [getattr(self, f"{name}{suffix}") for name in names]
        y, *last = self.layer(x, *state, *parameters)
        return y, tuple(last)

    def _arrange(self, x, states: tuple) -> tuple[Any, tuple]:
        checks.last_axes(self, x, (self.input_size,))
        if x.ndim != 3:
            axes = "(batch, time" if self.batch_first else "(time, batch"
            wanted = f"three axes: {axes}, {self.input_size})"
            raise checks.shape_error(checks.where(self), wanted, x)
        if self.batch_first:
            x = self.nn.permute(x, (1, 0, 2))
        leading = (self.num_layers * len(self.suffixes), x.shape[1])
        filled = []
        for state, width in zip(states, self.state_sizes, strict=True):
            filled.append(_state(self, state, (*leading, width), x))
        return x, tuple(filled)

    def _restore(self, x):
        return self.nn.permute(x, (1, 0, 2)) if self.batch_first else x


class LSTM(_Recurrent):
    """Long short-term memory; gate blocks in the order i, f, g, o.

    Source: Hochreiter and Schmidhuber 1997.

    Shapes:
        ``(time, batch, input_size)`` (or batch first) gives
        ``(time, batch, hidden_size * directions)`` and the last ``(h, c)``, each
        ``(num_layers * directions, batch, hidden_size)``. With `proj_size` the outputs and h have
        that width in the place of `hidden_size`.
    """

    gates = 4
    states = 2

    @property
    def layer(self):
        return self.nn.lstm

    def forward(self, x, state=None):
        given = (None, None) if state is None else tuple(state)
        return self._run_whole(x, given)


class _OneState(_Recurrent):
    """A recurrent layer without a cell: its state is h alone."""

    states = 1

    def forward(self, x, state=None):
        y, states = self._run_whole(x, (state,))
        return y, states[0]


class RNN(_OneState):
    """A plain recurrent network; `nonlinearity` is ``"tanh"`` or ``"relu"``.

    Source: Elman 1990.

    Shapes:
        ``(time, batch, input_size)`` (or batch first) gives
        ``(time, batch, hidden_size * directions)`` and the last ``h``,
        ``(num_layers * directions, batch, hidden_size)``.
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        settings = (num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, *settings)
        checks.one_of(nonlinearity, _NONLINEARITIES, "RNN: nonlinearity")
        self.nonlinearity = nonlinearity

    @property
    def layer(self):
        return partial(self.nn.rnn, nonlinearity=self.nonlinearity)


class GRU(_OneState):
    """Gated recurrent unit, reset applied after the product; gate blocks r, z, n.

    Source: arXiv 1406.1078.

    Shapes:
        ``(time, batch, input_size)`` (or batch first) gives
        ``(time, batch, hidden_size * directions)`` and the last ``h``,
        ``(num_layers * directions, batch, hidden_size)``.
    """

    gates = 3

    @property
    def layer(self):
        return self.nn.gru


class _Cell(Network):
    """One step of a recurrent layer, for inputs ``(batch, input_size)``."""

    gates: int

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        name = type(self).__name__
        self.input_size = checks.positive(input_size, "input_size", name)
        self.hidden_size = checks.positive(hidden_size, "hidden_size", name)
        start = fan_in_uniform(hidden_size)
        rows = self.gates * hidden_size
        self.weight_ih = self.nn.Parameter((rows, input_size), start)
        self.weight_hh = self.nn.Parameter((rows, hidden_size), start)
        self.bias_ih = self.nn.Parameter((rows,), start) if bias else None
        self.bias_hh = self.nn.Parameter((rows,), start) if bias else None

    def _step(self, layer, x, *states):
        """The states after one step of a layer with time first."""
        checks.last_axes(self, x, (self.input_size,))
        if x.ndim != 2:
            wanted = f"two axes: (batch, {self.input_size})"
            raise checks.shape_error(checks.where(self), wanted, x)
        shape = (x.shape[0], self.hidden_size)
        filled = [_state(self, state, shape, x) for state in states]
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return layer(self.nn.expand_dims(x, 0), *filled, *weights)[1:]


class RNNCell(_Cell):
    """One step of `RNN`: ``(batch, input_size)`` and h ``(batch, hidden_size)`` give the next h."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        checks.one_of(nonlinearity, _NONLINEARITIES, "RNNCell: nonlinearity")
        self.nonlinearity = nonlinearity

    def forward(self, x, hx=None):
        return self._step(partial(self.nn.rnn, nonlinearity=self.nonlinearity), x, hx)[
            0
        ]


class LSTMCell(_Cell):
    """One step of `LSTM`: ``(batch, input_size)`` and ``(h, c)`` give the next ``(h, c)``."""

    gates = 4

    def forward(self, x, hx=None):
        h, c = (None, None) if hx is None else hx
        return tuple(self._step(self.nn.lstm, x, h, c))


class GRUCell(_Cell):
    """One step of `GRU`: ``(batch, input_size)`` and h ``(batch, hidden_size)`` give the next h."""

    gates = 3

    def forward(self, x, hx=None):
        return self._step(self.nn.gru, x, hx)[0]


def _state(layer: Any, state: Any, shape: Shape, x: Any) -> Any:
    """Return a state, which is checked; zeros where none is given."""
    if state is None:
        return layer.nn.zeros(shape, like=x)
    if tuple(state.shape) != shape:
        raise ShapeError(
            f"{checks.where(layer)}: got a state of shape {tuple(state.shape)}, wanted {shape}"
        )
    return state
