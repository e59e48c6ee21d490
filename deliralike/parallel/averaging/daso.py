"""The schedule of DASO at each batch and after each epoch, as pure functions.

They send no message and know no network.

DASO is distributed asynchronous and selective optimization (Coquelin et al. 2021, "Accelerating
Neural Network Training with the Distributed Asynchronous and Selective Optimization (DASO)
Method"). Processes on one node average their gradients at every batch, or nearly so. Between nodes,
which are far apart, one process of each node, another one each time, sends its parameters; training
goes on meanwhile, and the sum is merged some batches later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from deliralike.errors import SettingError

N = TypeVar("N")  # a number or an array


@dataclass(frozen=True)
class Pace:
    """The frequency of messages between processes.

    Attributes:
        between: Batches from one message between nodes to the next.
        wait: Batches from a message to its merge; zero for a blocking average.
        local: Gradients are averaged within nodes in every `local`-th batch.
    """

    between: int = 1
    wait: int = 0
    local: int = 1


BLOCKING = Pace()
PATIENCE = 2  # a plateau is more epochs without progress than this
# The smallest allowed settings of a `Plan`.
_LEAST = {
    "epochs": 1,
    "warmup": 0,
    "cooldown": 0,
    "largest": 1,
    "reduction": 1,
    "local_factor": 1,
    "stability": 0,
}


@dataclass(frozen=True)
class Plan:
    """The phases of a run: blocking averages, then cycles, then blocking averages.

    In a cycle messages between nodes become more frequent on every plateau of the loss.

    Attributes:
        epochs: The epochs of the whole run.
        warmup: The epochs with blocking averages at the beginning.
        cooldown: The epochs with blocking averages at the end.
        largest: The largest number of batches between two messages.
        reduction: The divisor of `between` and `local` on a plateau.
        local_factor: The divisor that gives `wait` and `local` from `largest` where a cycle begins.
        stability: A loss that is less than this fraction below the best one so far is no progress.
    """

    epochs: int
    warmup: int = 4
    cooldown: int = 4
    largest: int = 8
    reduction: int = 2
    local_factor: int = 4
    stability: float = 0.05

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: A setting is too small; the error names it.
        """
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise SettingError(f"{name}={value!r} must be at least {least}")

    @property
    def opening(self) -> Pace:
        """The pace of the first epoch after the warm-up."""
        return Pace(min(4, self.largest), 1, 1)

    def cycles(self, epoch: int) -> bool:
        """Return whether an epoch belongs neither to the warm-up nor to the cool-down."""
        return self.warmup <= epoch < self.epochs - self.cooldown

    def after_plateau(self, pace: Pace) -> Pace:
        """Return the next pace of the cycle: more frequent messages.

        After the most frequent ones the cycle starts with the rarest again.

        Example:
            >>> plan, pace = Plan(epochs=90), Pace(4, 1, 1)
            >>> for _ in range(4):
            ...     pace = plan.after_plateau(pace)
            ...     print(pace.between, pace.wait, pace.local)
            2 1 1
            1 1 1
            8 2 2
            4 1 1
        """
        if pace.between == 1:
            sparse = max(1, self.largest // self.local_factor)
            return Pace(self.largest, sparse, sparse)
        return Pace(
            between=max(1, pace.between // self.reduction),
            wait=max(1, pace.wait - 1),
            local=max(1, pace.local // self.reduction),
        )


@dataclass(frozen=True)
class Sent:
    """A message: parameters that one member of each node has sent.

    Attributes:
        batch: The batch of the epoch after which they were sent.
        wait: How many batches later they are merged; zero for a blocking average.
        member: The number of the member within its node.
    """

    batch: int
    wait: int
    member: int


@dataclass(frozen=True)
class State:
    """The position in a run, after some batches of an epoch.

    Attributes:
        pace: The present pace.
        epoch: The next epoch, counted from 0.
        batch: The next batch of it, counted from 0.
        turn: The number of messages sent between nodes so far, which determines the next sender.
        under_way: The messages that are not merged yet.
        best: The best loss of an epoch since the warm-up.
        bad: The number of epochs without progress since.
    """

    pace: Pace
    epoch: int = 0
    batch: int = 0
    turn: int = 0
    under_way: tuple[Sent, ...] = ()
    best: float | None = None
    bad: int = 0

    @classmethod
    def of(cls, plan: Plan) -> State:
        """Return the state at the start of a run."""
        if plan.cycles(0):
            return cls(plan.opening)
        return cls(BLOCKING)

    def as_dict(self) -> dict[str, Any]:
        """Return the state as numbers, lists and dicts, for a checkpoint."""
        return asdict(self) | {"under_way": [asdict(sent) for sent in self.under_way]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> State:
        """Return the state that `as_dict` has described."""
        under_way = tuple(Sent(**sent) for sent in state["under_way"])
        return replace(cls(**state), pace=Pace(**state["pace"]), under_way=under_way)


@dataclass(frozen=True)
class Decision:
    """The actions after the update of a batch, in this order.

    Attributes:
        merges: The messages to merge.
        sends: Then the message to send; it is merged at once if its wait is zero.
    """

    merges: tuple[Sent, ...]
    sends: Sent | None


def decide(state: State, batches: int, members: int) -> tuple[Decision, State]:
    """Return the actions at a batch, and the state after it.

    Every message is merged once, `Pace.wait` batches after it was sent, or with the last batch of
    its epoch if that is sooner. The last batch ends in a blocking average: so nothing is left, and
    all processes have the same parameters.

    Args:
        batches: The number of batches of the epoch.
        members: The number of processes of each node.

    Example:
        >>> decision, after = decide(State(Pace(4, 1)), batches=10, members=2)
        >>> decision.sends, decision.merges
        (Sent(batch=0, wait=1, member=0), ())
        >>> decision, after = decide(after, batches=10, members=2)
        >>> decision.sends, decision.merges
        (None, (Sent(batch=0, wait=1, member=0),))
    """
    batch = state.batch
    left = max(0, batches - 1 - batch)
    merges: list[Sent] = []
    under_way: list[Sent] = []
    for sent in state.under_way:
        if sent.batch + sent.wait <= batch:
            merges.append(sent)
        else:
            under_way.append(sent)
    turn = state.turn
    sends = None
    if batch % state.pace.between == 0 or not left:
        sends = Sent(batch, min(state.pace.wait, left), turn % members)
        turn += 1
        if sends.wait:
            under_way.append(sends)
    decision = Decision(tuple(merges), sends)
    return decision, replace(
        state, batch=batch + 1, turn=turn, under_way=tuple(under_way)
    )


def averages_within(state: State, batches: int) -> bool:
    """Return whether the gradients of a batch are averaged within nodes.

    They always are before a message and while one is in flight.
    """
    if state.under_way or state.batch >= batches - 1:
        return True
    return state.batch % state.pace.local == 0 or state.batch % state.pace.between == 0


def merged(own: N, total: Any, nodes: int, waited: int) -> N:
    """Return the merged parameters of a sender.

    The older the sum, the more the sender's own parameters count; without a wait the result is the
    average.

    Args:
        own: The sender's parameters now.
        total: The sum over nodes of the parameters that were sent.
        waited: The number of batches since they were sent.

    Example:
        >>> merged(3.0, 10.0, nodes=2, waited=0), merged(3.0, 10.0, nodes=2, waited=1)
        (5.0, 4.0)
    """
    return (own * (2 * waited) + total) / (nodes + 2 * waited)  # type: ignore[operator]


def next_epoch(plan: Plan, state: State, loss: float) -> State:
    """Return the state after the last batch of an epoch, whose loss sets the next pace."""
    epoch = state.epoch + 1
    following = replace(state, epoch=epoch, batch=0)
    if not plan.cycles(epoch):
        return replace(following, pace=BLOCKING)
    pace = state.pace
    if epoch == plan.warmup:
        pace = plan.opening
    if _is_better(loss, state.best, plan.stability):
        return replace(following, pace=pace, best=loss, bad=0)
    if state.bad < PATIENCE:
        return replace(following, pace=pace, bad=state.bad + 1)
    return replace(following, pace=plan.after_plateau(pace), bad=0)


def _is_better(loss: float, best: float | None, stability: float) -> bool:
    return best is None or loss < best - stability * abs(best)
