"""What is imported when: nothing before it is asked for, and everything then."""

import ast
import importlib
import json
import subprocess
import sys

import pytest

PACKAGES = ("deliralike", "deliralike.parallel", "deliralike.weights", "deliralike.zoo")
FRAMEWORKS = {"torch", "chainer", "jax", "flax", "optax"}
FAMILIES = ("classification", "generative", "multimodal", "segmentation", "sequences")


def loaded_after(code):
    """Return the modules in a fresh process that has run `code`."""
    listing = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{listing}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def ours(modules):
    return {module for module in modules if module.split(".")[0] == "deliralike"}


def families(modules):
    """Return the modules of families, without the packages that hold them."""
    prefixes = tuple(f"deliralike.zoo.{task}." for task in FAMILIES)
    return {module for module in modules if module.startswith(prefixes)}


def test_importing_the_package_loads_two_modules_of_it_and_no_numpy():
    modules = loaded_after("import deliralike")
    assert ours(modules) == {"deliralike", "deliralike.lazy"}
    assert "numpy" not in modules


def test_listing_the_zoo_loads_no_family_no_weights_and_no_process_groups_of_daso():
    modules = loaded_after(
        "from deliralike import Network, zoo; assert len(zoo.list('resnet*')) > 20"
    )
    assert not families(modules)
    assert not FRAMEWORKS & modules
    assert (
        not {"deliralike.weights.reading", "deliralike.parallel.averaging.daso"}
        & modules
    )


def test_finding_a_network_loads_its_family_alone():
    modules = loaded_after("from deliralike import zoo; zoo.find('alexnet')")
    assert families(modules) == {"deliralike.zoo.classification.alexnet"}


def test_the_name_of_a_family_not_loaded_yet_is_refused():
    loaded_after(
        "from deliralike import errors, zoo\n"
        "try: zoo.register(lambda width=3: None, name='lenet')\n"
        "except errors.SettingError as error: assert 'classification.lenet.LeNet' in str(error)\n"
        "else: raise AssertionError"
    )


def test_a_package_finds_each_name_where_type_checkers_find_it(subtests):
    for name in PACKAGES:
        package = importlib.import_module(name)
        with subtests.test(name):
            checked = names_for_type_checkers(package)
            assert checked
            for attribute, (module, original) in checked.items():
                found, wanted = getattr(package, attribute), imported(module, original)
                if (
                    attribute == "rules"
                ):  # pytest binds the alias when it collects its doctests
                    found, wanted = found.rule, wanted.rule
                assert found is wanted
                assert attribute in dir(package)
            assert set(package.__all__) <= set(dir(package))


def names_for_type_checkers(package):
    """Return the imports under ``if TYPE_CHECKING:``, by the name that they bind."""
    with open(package.__file__, encoding="utf-8") as file:
        body = ast.parse(file.read()).body
    found = {}
    for statement in body:
        if isinstance(statement, ast.If):
            for node in statement.body:
                for alias in node.names:
                    found[alias.asname or alias.name] = node.module, alias.name
    return found


def imported(module, name):
    """Return what ``from module import name`` binds."""
    space = {}
    exec(f"from {module} import {name}", space)
    return space[name]


def test_an_unknown_name_is_an_attribute_error():
    import deliralike

    with pytest.raises(
        AttributeError, match="module 'deliralike' has no attribute 'Netwrok'"
    ):
        deliralike.Netwrok
