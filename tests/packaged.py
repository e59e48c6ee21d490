"""What the wheel and the source archive hold: ``python -m tests.packaged DIST REBUILT``.

The source archive holds what git tracks, and the wheel that part of it which is the package. The
wheel that was built from the archive alone, in the second folder, has the same files with the same
bytes. `make package` runs it.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

#: What a build adds, as the first part of a path or as its end.
OF_THE_BUILD = ("PKG-INFO", "deliralike.egg-info")
PACKAGE = ("deliralike/", "deliralike_pytest.py")


def tracked() -> set[str]:
    """The files that git tracks and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.split("\0") if name and Path(name).is_file()}


def of_archive(path: Path) -> dict[str, bytes]:
    """The files of a source archive, without those that the build adds."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile()]
        files = {
            member.name.partition("/")[2]: archive.extractfile(member).read()
            for member in members
        }
    return {
        name: data
        for name, data in files.items()
        if name.split("/")[0] not in OF_THE_BUILD
    }


def of_wheel(path: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def differences(what: str, there: set[str], wanted: set[str]) -> list[str]:
    """One line for each file that is missing or too many."""
    missing = [f"{what} lacks {name}" for name in sorted(wanted - there)]
    return missing + [
        f"{what} has {name}, which git does not track"
        for name in sorted(there - wanted)
    ]


def check(dist: Path, rebuilt: Path) -> tuple[int, int]:
    """How many files archive and wheel have; the program ends where they are not right."""
    [wheel], [archive], [again] = (
        dist.glob("*.whl"),
        dist.glob("*.tar.gz"),
        rebuilt.glob("*.whl"),
    )
    files, source, second = of_wheel(wheel), of_archive(archive), of_wheel(again)
    wanted = tracked()
    package = {name for name in wanted if name.startswith(PACKAGE)}
    installed = {name for name in files if ".dist-info/" not in name}
    problems = differences(archive.name, set(source), wanted)
    problems += differences(wheel.name, installed, package)
    problems += differences(f"{again.name} of {archive.name}", set(second), set(files))
    problems += [
        f"{name} is another file in the wheel of {archive.name}"
        for name in sorted(files.keys() & second.keys())
        if files[name] != second[name]
    ]
    problems += [
        f"{name} of the tree is another file in {wheel.name}"
        for name in sorted(package & installed)
        if Path(name).read_bytes() != files[name]
    ]
    if problems:
        sys.exit("\n".join(problems))
    return len(source), len(files)


if __name__ == "__main__":
    in_archive, in_wheel = check(*map(Path, sys.argv[1:]))
    print(
        f"package: git tracks the {in_archive} files of the archive, {in_wheel} in the wheel"
    )
