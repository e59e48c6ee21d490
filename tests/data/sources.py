"""Datasets and transforms for the tests of loaders; here, where worker processes can import
them."""

import os
import signal
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np

from deliralike import data


def in_batches(samples, size):
    """The samples of a stream in batches of so many."""
    rest = iter(samples)
    while rows := list(islice(rest, size)):
        yield data.collate(rows)


class Squares:
    """An indexable dataset of dicts that counts what is read."""

    def __init__(self, samples=23):
        self.samples, self.read = samples, []

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if not isinstance(index, int):
            raise TypeError(f"an index is an int, not {type(index)}")
        if index >= self.samples:
            raise IndexError(index)
        self.read.append(index)
        return {"x": np.full((3, 2), index**2, np.float32), "y": index}


class Failing(Squares):
    """Its sample 17 cannot be read."""

    def __getitem__(self, index):
        if index == 17:
            raise KeyError("a hole")
        return super().__getitem__(index)


class Hanging(Squares):
    """Its sample 7 never comes: the one who reads it sleeps, or is stopped as by SIGSTOP."""

    def __init__(self, how, said):
        super().__init__()
        self.how, self.said = how, said

    def __getitem__(self, index):
        if index == 7:
            Path(self.said).write_text(str(os.getpid()))
            if self.how == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(3600)
        return super().__getitem__(index)


class Stubborn(Exception):
    """An error that pickle cannot carry."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def fail_stubbornly(sample):
    raise Stubborn("one", "two")


def jittered(sample, generator):
    """A random transform of a dict."""
    return {
        "x": sample["x"]
        + generator.standard_normal(sample["x"].shape).astype(np.float32),
        "y": sample["y"],
    }


def scaled(batch, generator):
    """A random transform of a batch."""
    return {**batch, "x": batch["x"] * np.float32(generator.uniform(1, 2))}


def marked(sample):
    """Say which process and thread made the sample."""
    return {"y": sample["y"], "process": os.getpid(), "thread": threading.get_ident()}


def ended(sample):
    """End the worker process at once."""
    os._exit(3)
