"""Damage files and read them: ``python -m tests.fuzz --format pth --count 10000 --seed 0``."""

import argparse
import json
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.fuzz.children import findings, samples
from tests.fuzz.formats import FORMATS, load_everything
from tests.fuzz.hostile import HOSTILE
from tests.fuzz.mutations import Files, mutated


def main() -> int:
    """The command; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--format",
        action="append",
        choices=FORMATS,
        help="may be given several times; all of them",
    )
    parser.add_argument(
        "--count", type=int, default=300, help="mutations of each format"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=Path, help="a folder to write the files of the findings to"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one object: what was found, by format",
    )
    parser.add_argument(
        "--crafted",
        action="store_true",
        help="read the hostile files too",
    )
    arguments = parser.parse_args()
    load_everything()
    damaged = {name: _fuzz(name, arguments) for name in arguments.format or FORMATS}
    found = {"damaged": damaged}
    if arguments.crafted:
        found |= {"hostile": _hostile()}
    if arguments.json or arguments.crafted:
        print(json.dumps(found))
    return int(any(damaged.values()))


def _fuzz(name: str, arguments: argparse.Namespace) -> list[str]:
    begin = time.monotonic()
    whole = samples(FORMATS[name])

    def case(number: int) -> Files:
        if number < len(whole):
            return whole[number]  # whole ones first, which must be read
        rng = np.random.default_rng([arguments.seed, zlib.crc32(name.encode()), number])
        return mutated(whole[number % len(whole)], rng)

    found = []
    for number, problem in findings(FORMATS[name], case, arguments.count, len(whole)):
        found.append(f"case {number} of seed {arguments.seed}: {problem}")
        if arguments.keep:
            _keep(arguments.keep / f"{name}-{arguments.seed}-{number}", case(number))
    if not arguments.json:
        seconds = time.monotonic() - begin
        print(
            f"{name}: {arguments.count} cases, {len(found)} findings, {seconds:.1f} s",
            *found,
            sep="\n  ",
            flush=True,
        )
    return found


def _hostile() -> dict[str, list[str]]:
    """What is found in each of the hostile files, by format; one that is read is a finding, too."""
    found: dict[str, list[str]] = {}
    for (name, label), make in HOSTILE.items():
        format = replace(
            FORMATS[name], refuses=True, seconds=30
        )  # a million nested tuples take two
        found.setdefault(name, []).extend(
            f"{label}: {problem}"
            for _, problem in findings(format, lambda _: make(), 1)
        )
    return found


def _keep(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
