"""The bridge itself: what it corrects, what it leaves alone, and when it refuses."""

import importlib.machinery
import importlib.util
import inspect
import pathlib
import py_compile
import subprocess
import sys
import textwrap
import unittest
import warnings

import numpy as np
import pytest

from deliralike.backends import chainer_bridge as bridge

pytestmark = pytest.mark.filterwarnings("error")

# Loaded from its path, so that nothing else of the package is looked at.
LOAD = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("bridge", {bridge.__file__!r})
bridge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bridge)
"""
ROOT = pathlib.Path(bridge.__file__).parents[3]


@pytest.fixture
def run():
    """Runs code in a fresh process where warnings are errors, with the module `bridge` loaded;
    gives what it prints."""

    def run(code, path=ROOT):
        code = LOAD + f"sys.path.insert(0, {str(path)!r})\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stderr == ""
        return done.stdout.strip()

    return run


@pytest.fixture
def another_chainer(tmp_path):
    """A folder with a package `chainer` that has none of the texts to be corrected."""
    package = tmp_path / "chainer"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '8.0.0'\n")
    (package / "variable.py").write_text("pass\n")
    return tmp_path


@pytest.fixture
def small_chainermn(tmp_path):
    """A folder with the one corrected module of chainermn, of three lines, in place of the real
    package."""
    package = tmp_path / "chainermn" / "iterators"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    module = package / "multi_node_iterator.py"
    module.write_text(
        "class Size:\n    def get(self, _size):\n        return int(_size)\n"
    )
    return tmp_path


def test_chainer_is_imported_without_a_warning_and_leaves_numpy_alone(run):
    code = """
        import numpy, scipy.sparse, scipy.special  # which adds two filters of its own
        before = {name: id(getattr(numpy, name)) for name in dir(numpy)}
        filters = __import__("warnings").filters[:]
        bridge.install()
        import chainer, chainer.functions, chainer.links
        assert {name: id(getattr(numpy, name)) for name in dir(numpy)} == before
        assert not hasattr(numpy, "bool8") and not hasattr(numpy, "sctypes")
        assert chainer.backend.get_array_module(numpy.zeros(2)) is numpy
        assert __import__("warnings").filters == filters
        unwanted = ["pkg_resources", "numpy.distutils", "setuptools", "distutils"]
        unwanted += ["torch", "jax", "deliralike"]
        assert [name for name in unwanted if name in sys.modules] == []
        print(chainer.__version__)
    """
    assert run(code) == bridge.CHAINER_VERSION


def test_setuptools_is_not_needed(run):
    code = """
        absent = ("setuptools", "pkg_resources", "distutils", "_distutils_hack")
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in absent:
                    raise ImportError(name)
        sys.meta_path.insert(0, Absent())
        bridge.install()
        import chainer, chainer.testing, chainer.links.caffe, numpy
        print(chainer.functions.resize_images(numpy.ones((1, 1, 2, 2), "float32"), (3, 3)).shape)
    """
    assert run(code) == "(1, 1, 3, 3)"


def test_many_threads_may_install_it_and_import_chainer_at_once(run):
    code = """
        import threading
        def work():
            bridge.install()
            import chainer
            done.append(chainer.Variable is not None)
        done = []
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(done.count(True), [type(f).__name__ for f in sys.meta_path].count("CorrectingFinder"))
    """
    assert run(code) == "8 1"


def test_a_chainer_that_came_through_the_bridge_may_be_installed_again(run):
    code = """
        bridge.install()
        import chainer
        bridge.install()
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
        copy.install()
        assert [type(f).__name__ for f in sys.meta_path].count("CorrectingFinder") == 1
        sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "CorrectingFinder"]
        copy.install()
        print(type(sys.meta_path[0]).__name__)
    """
    assert run(code) == "CorrectingFinder"


def test_another_chainer_is_refused_by_name_and_version(run, another_chainer):
    code = """
        bridge.install()
        try:
            import chainer.variable
        except ImportError as error:
            print(error.name, error)
    """
    said = run(code, another_chainer)
    assert said.startswith(
        "chainer.variable module 'chainer.variable' does not have the text \"device = getattr("
    )
    assert "wanted chainer 7.8.1, found " in said and said.endswith(
        "Run: pip install chainer==7.8.1"
    )


@pytest.mark.parametrize(
    "before",
    [
        "import chainer",
        "try: import chainer.broken\nexcept ZeroDivisionError: del sys.modules['chainer']",
    ],
)
def test_it_refuses_to_come_too_late(run, another_chainer, before):
    (another_chainer / "chainer" / "part.py").touch()
    (another_chainer / "chainer" / "broken.py").write_text(
        "import chainer.part\n1 / 0\n"
    )
    code = f"""
{before}
try:
    bridge.install()
except ImportError as error:
    print(error)
    print("CorrectingFinder" in [type(f).__name__ for f in sys.meta_path])
"""
    said, installed = run(code, another_chainer).splitlines()
    assert said.startswith(
        "chainer was imported before deliralike could prepare it for this NumPy"
    )
    assert (
        "Start a fresh Python process" in said
        and "before the first 'import chainer'" in said
    )
    assert installed == "False"


def test_loading_the_package_alone_installs_nothing(run):
    code = """
        import deliralike
        print([name for name in ("chainer", "deliralike.backends.chainer") if name in sys.modules])
        print("CorrectingFinder" in [type(f).__name__ for f in sys.meta_path])
    """
    assert run(code) == "[]\nFalse"


def test_a_stale_compiled_file_is_passed_over_and_none_is_written(run, small_chainermn):
    source = small_chainermn / "chainermn" / "iterators" / "multi_node_iterator.py"
    compiled = pathlib.Path(py_compile.compile(str(source)))
    before = compiled.read_bytes()
    code = """
        import numpy
        bridge.install()
        from chainermn.iterators.multi_node_iterator import Size
        print(Size().get(numpy.ones(1)))
    """
    assert run(code, small_chainermn) == "1"
    assert compiled.read_bytes() == before


def test_a_corrected_module_can_be_reloaded_inspected_and_pickled(run, small_chainermn):
    code = """
        import inspect, pickle, numpy
        bridge.install()
        import chainermn.iterators.multi_node_iterator as module
        module = importlib.reload(module)
        assert module.Size().get(numpy.ones(1)) == 1
        assert type(pickle.loads(pickle.dumps(module.Size()))) is module.Size
        assert pickle.loads(pickle.dumps(module.__spec__.origin)) == module.__file__
        print(inspect.getsourcelines(module.Size.get))
    """
    assert run(code, small_chainermn) == (
        r"(['    def get(self, _size):\n', '        return int(_size.item())\n'], 2)"
    )


def test_a_traceback_shows_the_line_that_ran(run, small_chainermn):
    code = """
        import traceback
        bridge.install()
        from chainermn.iterators.multi_node_iterator import Size
        try:
            Size().get(None)
        except AttributeError as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            print(frame.lineno, frame.line)
    """
    assert run(code, small_chainermn) == "3 return int(_size.item())"


@pytest.mark.parametrize(
    "name",
    [
        "json",
        "chainer",
        "chainer.link",
        "chainer.functions",
        "chainermn",
        "numpy",
        "torch",
    ],
)
def test_the_finder_answers_only_for_the_table(name):
    assert bridge.CorrectingFinder().find_spec(name) is None


def test_the_rest_of_chainer_is_loaded_as_usual():
    import chainer

    assert type(chainer.link.__loader__) is importlib.machinery.SourceFileLoader
    assert type(chainer.variable.__loader__).__name__ == "CorrectingLoader"


def test_a_module_that_is_not_there_is_not_found(monkeypatch):
    monkeypatch.setitem(bridge.CORRECTIONS, "no_such_module", ())
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("no_such_module")


def _plain_text(name):
    folder = pathlib.Path(
        importlib.util.find_spec(name.partition(".")[0]).origin
    ).parents[1]
    return (folder / f"{name.replace('.', '/')}.py").read_text("utf-8")


@pytest.mark.parametrize("name", bridge.CORRECTIONS)
def test_a_correction_changes_the_text_keeps_its_lines_and_compiles_quietly(name):
    before = _plain_text(name)
    after = bridge.corrected(name, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(after, name, "exec", dont_inherit=True)
    assert len(after.splitlines()) == len(before.splitlines())
    assert after != before


@pytest.mark.parametrize("name", bridge.CORRECTIONS)
def test_each_text_keeps_its_number_of_lines(name):
    assert [old.count("\n") for old, _ in bridge.CORRECTIONS[name]] == [
        new.count("\n") for _, new in bridge.CORRECTIONS[name]
    ]


@pytest.mark.parametrize("name", bridge.CORRECTIONS)
def test_every_corrected_module_can_be_imported(name):
    if name.endswith("caffe_pb2"):
        pytest.importorskip("google.protobuf")
    module = importlib.import_module(name)
    assert inspect.getsource(module) == bridge.corrected(name, _plain_text(name))


def test_requirements_of_chainers_own_tests_are_checked():
    from chainer.testing import with_requires, without_requires

    def skipped(decorator, *requirements):
        @decorator(*requirements)
        class Case(unittest.TestCase):
            pass

        return getattr(Case, "__unittest_skip__", False)

    assert [
        skipped(with_requires, r)
        for r in ("numpy>=1.0", "numpy<1.0", "no-such-package")
    ] == [
        False,
        True,
        True,
    ]
    assert [
        skipped(without_requires, r)
        for r in ("numpy>=1.0", "numpy<1.0", "no-such-package")
    ] == [
        True,
        False,
        False,
    ]
    assert skipped(with_requires, "numpy>=1.0", "pytest<1") is True


def test_a_multi_node_iterator_reads_the_size_of_the_data_set_from_an_array():
    from chainermn.iterators.multi_node_iterator import _MultiNodeIteratorSlave

    messages = iter([np.array([13], "float32"), np.array([-1], "float32")])

    class Communicator:
        def bcast(self, data, root):
            return next(messages)

    assert _MultiNodeIteratorSlave(Communicator(), 0).dataset_size == 13
