"""The gallery has every architecture, and its examples run."""

import contextlib
import importlib
import sys
from pathlib import Path

import pytest

from deliralike import nest, zoo
from deliralike.zoo.inputs import is_shape

DOCS = Path(__file__).parents[2] / "docs"
TASKS = ("classification", "segmentation", "generative", "multimodal", "sequences")
NAMES = zoo.list()  # before other tests and pages register theirs
FAMILIES = {
    module: [name for name in NAMES if zoo.find(name).network.__module__ == module]
    for module in sorted({zoo.find(name).network.__module__ for name in NAMES})
}
#: One of each kind of sample and output; the zoo's own tests run every architecture.
EXAMPLES = [
    f"deliralike.zoo.{module}"
    for module in (
        "classification.resnet",
        "classification.vit",
        "generative.vae",
        "generative.dcgan",
        "generative.diffusion_model_unet",
        "multimodal.clip",
        "segmentation.pspnet",
        "segmentation.unet",
        "sequences.recurrent",
        "sequences.t5",
    )
]
#: Whose numbers are computed, too.
COMPUTED = (
    "classification.resnet",
    "segmentation.pspnet",
    "generative.vae",
    "sequences.recurrent",
)


@pytest.fixture(scope="module")
def gallery():
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(DOCS / "_ext"))
    return importlib.import_module("gallery")


def test_every_architecture_is_in_one_family(gallery):
    families = [family for task in TASKS for family in gallery.families(task).values()]
    assert sorted(name for names in families for name in names) == sorted(NAMES)
    assert sorted(map(sorted, families)) == sorted(map(sorted, FAMILIES.values()))


def test_every_page_of_the_gallery_asks_for_its_task():
    pages = {
        task: (DOCS / "gallery" / f"{task}.md").read_text(encoding="utf-8")
        for task in TASKS
    }
    assert [
        task for task, page in pages.items() if f"```{{gallery}} {task}" not in page
    ] == []


def test_a_family_says_what_sets_it_apart_from_its_paper():
    texts = {module: sys.modules[module].__doc__ for module in FAMILIES}
    assert [
        module for module, text in texts.items() if len(text.strip().split("\n\n")) < 2
    ] == []  # two paragraphs
    assert [module for module, text in texts.items() if "paper" not in text] == []


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_example_of_a_family_runs_and_gives_the_shape_of_the_table(gallery, module):
    name = gallery.smallest(FAMILIES[module])
    text, names = gallery.example(name), {}
    with only_shapes(not module.endswith(COMPUTED)):
        exec(text, names)
    settings = {names["network"].outputs: 4} if "=4" in text else {}
    shapes = [tuple(leaf.shape) for leaf in nest.leaves(names["output"])]
    assert shapes == nest.flatten(zoo.outline(name, **settings).output, is_shape)[0]


def only_shapes(wanted):
    """PyTorch computes shapes and types instead of numbers."""
    if not wanted:
        return contextlib.nullcontext()
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)
