"""``python -m tests.published``: write the registry of published weights anew.

The tables are those of the installed reference libraries; nothing is downloaded.
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from tests.published import tables

FOLDER = Path(__file__).parents[2] / "deliralike" / "zoo" / "published"
_DISTRIBUTIONS = {"smp": "segmentation_models_pytorch"}


def text(source: str, records: list[dict[str, Any]]) -> str:
    """Return a file of the registry: one entry a line."""
    distribution = _DISTRIBUTIONS.get(source, source)
    version = importlib.metadata.version(distribution)
    rows = [
        json.dumps(dict(tables.lines(record)), ensure_ascii=False) for record in records
    ]
    head = f'{{"source": "{source}", "version": "{version}", "weights": [\n'
    return head + ",\n".join(rows) + "\n]}\n"


def main() -> None:
    """Write every file."""
    for source, records in tables.SOURCES.items():
        found = records()
        path = FOLDER / f"{source}.json"
        path.write_text(text(source, found), encoding="utf-8")
        architectures = {record["architecture"] for record in found}
        print(
            f"{path.name}: {len(found)} weights of {len(architectures)} architectures"
        )
    labels = json.dumps(tables.labels(), ensure_ascii=False, indent=0)
    (FOLDER / "labels.json").write_text(f"{labels}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
