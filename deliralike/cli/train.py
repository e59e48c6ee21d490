"""``deliralike train``: a run from settings, or the rest of an interrupted one."""

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deliralike.cli import runs
from deliralike.cli.console import figure_text, figures_text, say, show_confusion
from deliralike.cli.options import Pairs, key_values, settings_option
from deliralike.cli.ported import ported
from deliralike.cli.settings import spread
from deliralike.errors import SettingError, listed

if TYPE_CHECKING:
    from deliralike.parallel import ProcessGroup
    from deliralike.training.experiment import Experiment, FoldsResult, RunResult
    from deliralike.training.experiment.run import RunPlan


def command(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTINGS|NETWORK]",
            help="A file of settings (.toml), a network of the zoo, or yours: file.py:Net.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A dataset, or your own: module:function, a folder, .npz, .csv. (default: digits)"
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Columns of a table that are measured, for regression."
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="torch, chainer, jax …: see 'deliralike backends'. (default: torch)"
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the data. (default: 5)")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples in each batch. (default: 32)")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Start values, order of samples, dropout. (default: 0)"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder. (default: runs/NETWORK-0001, -0002 …)"),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Go on with an interrupted run, or with its folds."
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What may differ from the run that is resumed: clip_norm, transforms.",
        ),
    ] = None,
    continue_: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Go on with the run in --out if it is there; else begin it.",
        ),
    ] = False,
    folds: Annotated[
        int | None,
        typer.Option(min=2, help="Cross-validation: so many runs, and a summary."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="So many runs, with seeds from --seed on, and means."),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, adam, adamw, rmsprop … (default: sgd)")
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="The learning rate. (default: depends on the optimizer)"),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            help="A device of the backend; several for replicas, or for the processes of a node. "
            "(default: its first)"
        ),
    ] = None,
    set_: Annotated[
        Pairs,
        settings_option(
            "Any setting: clip_norm=1, schedule.steps=90; the network's: depth=14."
        ),
    ] = None,
    proof: Annotated[
        bool,
        typer.Option(
            " /--no-proof",
            help="Do not prove the port of a class of another framework.",
        ),
    ] = True,
) -> None:
    """Train a network and leave settings, metrics, curves, checkpoints and weights in a new folder.

    'deliralike settings' prints all settings and what they do. Options come before what a file
    says. Channels and classes are taken from the data.
    """
    from deliralike import join
    from deliralike.backends.processes.environment import restarts

    options = {
        "data": data,
        "data_settings.target": target,
        "backend": backend,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "folds": folds,
        "optimizer": optimizer,
        "optimizer_settings.lr": lr,
        "devices": device,
    }
    changes: dict[str, Any] = {}
    for key, value in options.items():
        if value is not None:
            changes[key] = value
    changes |= spread(key_values(set_ or (), "--set"))
    if (source is None) == (resume is None):
        raise SettingError(
            "give a file of settings or a network to train, or --resume FOLDER to go on with a run"
        )
    if resume is not None and out is not None:
        raise SettingError(
            "--resume goes on in the folder of the run: leave --out away"
        )
    again, at_most = restarts()
    if (continue_ or at_most) and out is None and resume is None:
        raise SettingError(
            "--continue and restarts go on in the folder of the run: name it, --out FOLDER"
        )
    if seeds is not None:
        if source is None:
            raise SettingError(
                "--seeds go on by the call that began them, with its --out: leave --resume away"
            )
        train = partial(
            run, resume=None, if_there=True, accept=accept or (), proof=proof
        )
        _train_seeds(_from_source(source, changes), seeds, out, train)
        return
    if source is not None:
        experiment = _from_source(source, changes)
    else:
        experiment = _from_folder(Path(resume or ""), changes)
    experiment.processes = join()
    run(experiment, out, resume, continue_ or again > 0, accept or (), proof)


def run(
    experiment: "Experiment",
    out: Path | None,
    resume: Path | None,
    if_there: bool = False,
    accept: Sequence[str] = (),
    proof: bool = True,
) -> None:
    """Train one run, one fold or all folds; on Ctrl-C, print how to go on.

    Args:
        if_there: Go on with the run in `out`, if there is one.
        accept: The settings that may differ from those of a resumed run.
        proof: Prove the port of a class of another framework.
    """
    settings = experiment.settings
    if settings.folds is not None and experiment.processes.count > 1:
        raise SettingError(
            "folds in several processes: train one fold in each call, without 'deliralike launch'"
        )
    if accept and settings.folds is not None:
        raise SettingError(
            "--accept is for one run: folds that shall go on are those of the same settings"
        )
    if settings.folds is None:
        _train_run(
            experiment, resume or out, resume is not None, if_there, accept, proof
        )
    elif settings.fold is None:
        _all_folds(experiment, resume or out)
    elif resume is not None:
        _train_run(experiment, resume, True)
    else:
        _train_fold(experiment, out)


def _train_seeds(
    experiment: "Experiment",
    count: int,
    out: Path | None,
    train: Callable[["Experiment", Path], None],
) -> None:
    """Train a run for each seed that has not finished, in a folder of `out`, and list them."""
    from deliralike import join
    from deliralike.training.experiment.folder import next_folder

    if join().count > 1:
        raise SettingError(
            "--seeds makes runs one after the other: leave 'deliralike launch' away"
        )
    settings, _ = (
        experiment.complete()
    )  # mistakes are reported before there is a folder
    parent = out or next_folder("runs", settings.short_name)
    for seed in range(settings.seed, settings.seed + count):
        say(f"seed {seed}", "bold")
        try:
            train(experiment.with_(seed=seed), parent / f"seed={seed}")
        except typer.Exit:
            say(f"the same call with --out {parent} goes on with all runs")
            raise
    runs.command(parent, mean=True)


def _from_source(source: str, changes: Mapping[str, Any]) -> "Experiment":
    """Return the experiment of a file of settings, or of a network's name."""
    from deliralike.training.experiment import Experiment, read_settings
    from deliralike.training.experiment.files import (
        changed,
        is_file_name,
        settings_from,
    )

    if is_file_name(source):
        return Experiment(read_settings(source, changes))
    return Experiment(settings_from(changed({"network": source}, changes)))


def _from_folder(folder: Path, changes: Mapping[str, Any]) -> "Experiment":
    """Return the experiment whose settings a run's folder holds."""
    from deliralike.training.experiment import SETTINGS, Experiment, read_settings
    from deliralike.training.experiment.folder import refuse_no_run

    refuse_no_run(folder, may_have_folds=True)
    return Experiment(read_settings(folder / SETTINGS, changes))


def _train_run(
    experiment: "Experiment",
    folder: Path | None,
    resume: bool,
    if_there: bool = False,
    accept: Sequence[str] = (),
    proof: bool = True,
) -> None:
    from deliralike.training.experiment import SETTINGS, RunResult, refuse_existing

    if if_there and folder is not None:
        resume = experiment.processes.broadcast_object(
            "whether the run is there", (folder / SETTINGS).is_file()
        )
    if folder is not None and not resume and experiment.processes.is_root:
        refuse_existing(folder)
    port = None if resume else ported(experiment, folder, proof)
    if port is None:
        plan = experiment.plan(folder, resume=resume, accept=accept)
    else:
        plan = experiment.plan_with(*port, goes_on=True)
    if not isinstance(plan, RunResult):
        result = _trained(plan)
    elif if_there:
        result = plan
    else:
        raise SettingError(
            f"the run in {str(folder)!r} has finished: there is nothing to go on with. "
            f"For more: --epochs {plan.settings.epochs + 5}"
        )
    if experiment.processes.is_root:
        _show(result)
    experiment.processes.close()


def _trained(plan: "RunPlan", again: Path | None = None) -> "RunResult":
    """Train with a bar; `again` is the folder to resume after Ctrl-C or another signal."""
    from deliralike.training.callbacks.progress import ProgressBar, bars

    try:
        if not plan.processes.is_root:
            return plan.train()
        _announce(plan)
        with bars() as progress:
            result = plan.train([ProgressBar(plan.settings.backend, progress=progress)])
        _draw_predictions(plan)
        return result
    except KeyboardInterrupt as error:
        code = _stopped(error, plan.processes, again or plan.folder)
        raise typer.Exit(code) from None


def _draw_predictions(plan: "RunPlan") -> None:
    """Draw what the final weights predict for held-out pictures, in a process alone."""
    from deliralike import weights
    from deliralike.training.experiment import WEIGHTS
    from deliralike.training.experiment.building import loaders
    from deliralike.training.experiment.sheets import draw_predictions

    if plan.processes.count == 1:
        weights.load(plan.network, plan.folder / WEIGHTS)  # averaged ones, if any are
        _, held_out = loaders(plan.settings, plan.dataset)
        draw_predictions(plan.network, held_out, plan.dataset, plan.folder)


def _announce(plan: "RunPlan") -> None:
    from deliralike.network.core import count_parameters
    from deliralike.training.experiment.folder import STATUS

    network = plan.network
    count = plan.processes.count
    in_processes = f" in {count} processes" if count > 1 else ""
    has_begun = (plan.folder / STATUS).exists()
    doing = "going on in" if has_begun else "writing to"
    say(f"data {plan.dataset.description}")
    say(
        f"{plan.settings.network} with {count_parameters(network):,} parameters on "
        f"{network.backend.version()}{in_processes}, {doing} {plan.folder}"
    )


def _stopped(error: KeyboardInterrupt, processes: "ProcessGroup", folder: Path) -> int:
    """Print how to go on, and return the exit code."""
    from deliralike.backends.processes.environment import say_at_the_end
    from deliralike.training.interrupt import KILLED, Interrupted

    number = error.signal if isinstance(error, Interrupted) else signal.SIGINT
    if processes.is_root:
        by = "" if number == signal.SIGINT else f" by {number.name}"
        say_at_the_end(
            f"deliralike: stopped{by}; to go on: deliralike train --resume {folder}"
        )
    if isinstance(error, Interrupted):
        processes.close()
    return KILLED + number


def _show(result: "RunResult") -> None:
    from deliralike.training.experiment.folder import CONFUSION, CURVES, SHEET

    milliseconds = result.history.seconds_per_step * 1e3
    speed = "" if math.isnan(milliseconds) else f"; {milliseconds:.1f} ms a step"
    show_confusion(result.metrics)
    say(f"held-out {figures_text(result.metrics)}{speed}")
    if result.stopped:
        say(f"stopped early: {result.stopped}")
    drawn = [
        name for name in (CURVES, SHEET, CONFUSION) if (result.folder / name).exists()
    ]
    paths = listed([str(result.folder / name) for name in drawn])
    say(f"see {paths}; try: deliralike predict {result.folder}")


# Folds --------------------------------------------------------------------------------------------


def _all_folds(experiment: "Experiment", folder: Path | None) -> None:
    from deliralike.training.experiment.folds import run_folds

    # A mistake in the settings is reported before a folder is made.
    experiment.with_(fold=1).complete()
    _show_folds(run_folds(experiment.settings, folder, partial(_fold, experiment)))


def _train_fold(experiment: "Experiment", folder: Path | None) -> None:
    from deliralike.training.experiment.folds import fold_folder, folds_folder

    experiment.complete()
    parent = folds_folder(experiment.settings, folder)
    fold = experiment.settings.fold or 1
    _show(_fold(experiment, fold_folder(parent, fold), fold))


def _fold(experiment: "Experiment", folder: Path, fold: int) -> "RunResult":
    """Return the result of a fold in its folder: begun, resumed, or finished already."""
    from deliralike.training.experiment import RunResult

    say(f"fold {fold} of {experiment.settings.folds}", "bold")
    plan = experiment.with_(fold=fold).plan(folder, resume=True)
    if isinstance(plan, RunResult):
        say(f"finished already: {folder}")
        return plan
    return _trained(plan, again=folder.parent)


def _show_folds(result: "FoldsResult") -> None:
    from deliralike.training.experiment.folder import SUMMARY

    for name, interval in result.metrics.items():
        numbers = (interval.mean, interval.low, interval.high)
        mean, low, high = [figure_text(name, number) for number in numbers]
        say(f"held-out {name}: mean {mean}, 95 % interval from {low} to {high}")
    say(
        f"see {result.folder / SUMMARY}; each fold is a run of its own: deliralike predict "
        f"{result.runs[0].folder}"
    )
