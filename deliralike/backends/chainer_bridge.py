"""The only place that lets Chainer 7.8.1 run on current releases of Python and its libraries.

Those are NumPy, SciPy, h5py, protobuf and CuPy. An import hook compiles a handful of Chainer's
modules from corrected source text. Nothing else changes: NumPy keeps its namespace, no other
library is touched, and no file is written.
"""

import importlib.machinery
import importlib.metadata
import linecache
import sys
import threading

CHAINER_VERSION = "7.8.1"


def install():
    """Let every later import of Chainer go through the bridge.

    Calling it again does nothing, and threads may call it at the same time. Chainer itself is not
    imported here.

    Raises:
        ImportError: Chainer, or a part of it, was imported before, without the bridge.

    Example:
        >>> install()
        >>> import chainer
        >>> chainer.__version__
        '7.8.1'
    """
    with _lock:
        if any(_same_class(finder, CorrectingFinder) for finder in sys.meta_path):
            return
        loaded = sorted(
            name
            for name in sys.modules
            if name.partition(".")[0] in ("chainer", "chainermn")
        )
        if loaded and not _went_through_the_bridge():
            raise ImportError(
                "chainer was imported before deliralike could prepare it for this NumPy "
                f"({loaded[0]!r} is loaded, perhaps after an import that failed). Start a fresh "
                "Python process, and there load the chainer backend of deliralike before the "
                "first 'import chainer'.",
                name="chainer",
            )
        sys.meta_path.insert(0, CorrectingFinder())


class CorrectingFinder:
    """A meta-path finder that answers only for the modules in the table of corrections."""

    def find_spec(self, name, path=None, target=None):
        """Return the ordinary spec of a module, with a loader that corrects its source.

        The result is ``None`` for a module that needs no correction.
        """
        if name not in CORRECTIONS:
            return None
        spec = _ordinary_spec(name, path, target)
        if spec is not None:
            spec.loader = CorrectingLoader(name, spec.origin)
        return spec


class CorrectingLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its corrected source, past any compiled file that lies beside it."""

    def get_source(self, name):
        """Return the corrected text of the file, which is what runs."""
        return corrected(name, super().get_source(name))

    def get_code(self, name):
        """Compile the corrected text; tracebacks and `inspect` show that text too."""
        text = self.get_source(name)
        linecache.cache[self.path] = (
            len(text),
            None,
            text.splitlines(keepends=True),
            self.path,
        )
        return self.source_to_code(text, self.path)


def corrected(name, text):
    """Return the corrected source text of module `name`; every line keeps its number.

    Raises:
        ImportError: A text to be corrected is missing, so this is another release of Chainer.
    """
    for old, new in CORRECTIONS[name]:
        if old not in text:
            raise ImportError(
                f"module {name!r} does not have the text {old.splitlines()[0].strip()!r}, which "
                f"has to be corrected: wanted chainer {CHAINER_VERSION}, found "
                f"{_version_found()}. Run: pip install chainer=={CHAINER_VERSION}",
                name=name,
            )
        text = text.replace(old, new)
    return text


def _ordinary_spec(name, path, target):
    for finder in sys.meta_path:
        if not _same_class(finder, CorrectingFinder) and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


def _went_through_the_bridge():
    module = sys.modules.get("chainer._environment_check")
    return _same_class(getattr(module, "__loader__", None), CorrectingLoader)


def _same_class(instance, cls):
    # Compared by name, so that a second copy of this file (reloaded, or loaded from its path) is
    # recognised.
    return type(instance).__qualname__ == cls.__qualname__


def _version_found():
    try:
        return importlib.metadata.version("chainer")
    except importlib.metadata.PackageNotFoundError:
        return "one that is not installed as a package"


_lock = threading.Lock()

_ADD_AT = ("cuda.cupyx.scatter_add", "cuda.cupy.add.at")

# Module -> (old text, new text) ...: every occurrence is replaced, and both texts have the same
# number of lines.
CORRECTIONS = {
    # Imports numpy.distutils (gone with Python 3.12) and pkg_resources (gone with setuptools 81)
    # only to print warnings about Accelerate on macOS and about releases of CuPy that were current
    # in 2022.
    "chainer._environment_check": (
        ("import numpy.distutils.system_info\nimport pkg_resources\n", "\n\n"),
        (
            (
                "    _check_python_350()\n"
                "    _check_osx_numpy_backend()\n"
                "    _check_optional_dependencies()\n"
            ),
            "    pass\n\n\n",
        ),
    ),
    # CuPy 14 has no cuDNN, and importing Chainer warned that it be installed again.
    "chainer.backends.cuda": (
        (
            "int(os.environ.get('CHAINER_CUDNN', '1')) == 0",
            "int(os.environ.get('CHAINER_CUDNN', '1')) == 0 or _cupy_major > 13",
        ),
    ),
    # numpy.sctypes is gone (NumPy 2). The indices were as wide as the values: int16 for float16,
    # which wrapped around silently past 32,767 elements, so that the gradient was wrong.
    "chainer.functions.array.as_strided": (
        (
            "index_dtype = {t().itemsize: t for t in np.sctypes['int']}",
            "index_dtype = dict.fromkeys((2, 4, 8, 16), np.int64)",
        ),
        ("if gy.dtype not in np.sctypes['float']:", "if gy.dtype.kind != 'f':"),
        _ADD_AT,
    ),
    # numpy.float, an old name of Python's float, is gone (NumPy 1.24).
    # Of all functions of a vision network this one alone insisted on float32; its arithmetic is
    # that of its input. CuPy 14: a product of two float16 is a float, and atomicAdd has no overload
    # for (float16 *, float). Of the CuPy part: compiled for float16, float32 and float64, not run.
    "chainer.functions.array.resize_images": (
        ("dtype=numpy.float)", "dtype=float)"),
        ("x_type.dtype == numpy.float32,", "x_type.dtype.kind == 'f',"),
        ("gy_type.dtype == numpy.float32,", "gy_type.dtype.kind == 'f',"),
        ("u0], w0 * gy);", "u0], (T)(w0 * gy));"),
        ("u1], w1 * gy);", "u1], (T)(w1 * gy));"),
        ("u0], w2 * gy);", "u0], (T)(w2 * gy));"),
        ("u1], w3 * gy);", "u1], (T)(w3 * gy));"),
    ),
    # scatter_add is deprecated (CuPy 14).
    "chainer.functions.array.scatter_add": (_ADD_AT,),
    "chainer.functions.array.spatial_transformer_sampler": (_ADD_AT,),
    # Slow, not wrong: the gradient of x[2:5] went through add.at, element by element, though slices
    # take none twice.
    "chainer.functions.array.get_item": (
        (
            "gx.scatter_add(slices, inputs[0])",
            "chainer.backends.cuda.cupy.add.at(gx, slices, inputs[0])",
        ),
        (
            "numpy.add.at(gx, slices, gy)",
            (
                "gx.__setitem__(slices, gy) if all(type(s) in (int, slice) or s is None or s is "
                "Ellipsis for s in slices) else numpy.add.at(gx, slices, gy)"
            ),
        ),
    ),
    # A bug of the release: passes variables where shapes are unpacked. Met when only the gradient
    # of W is wanted, as in a first layer, which then cannot be trained.
    "chainer.functions.connection.deconvolution_2d": (
        ("self._set_cover_all(x, W)", "self._set_cover_all(x.shape, W.shape)"),
    ),
    # NumPy 2 does not convert a Python integer that is out of range, such as a padding of -1 in an
    # array of uint8. Through an array of shape (1,) it wraps around as it always did.
    "chainer.functions.array.pad_sequence": (
        (
            "y[i, l:] = self.padding",
            "y[i, l:] = xp.array([self.padding]).astype(y.dtype)",
        ),
    ),
    # A NumPy scalar is a float64 that widens the arrays it meets (NumPy 2), and then the dtypes no
    # longer agree.
    "chainer.functions.normalization.layer_normalization": (
        ("self.eps = eps", "self.eps = float(eps)"),
    ),
    "chainer.functions.normalization.local_response_normalization": (
        ("self.k = k", "self.k = float(k)"),
        ("self.alpha = alpha", "self.alpha = float(alpha)"),
        ("self.beta = beta", "self.beta = float(beta)"),
    ),
    # numpy.meshgrid returns a tuple (NumPy 2), to which a list is added.
    "chainer.distributions.categorical": (
        ("mg = numpy.meshgrid(", "mg = list(numpy.meshgrid("),
        ("indexing='ij')", "indexing='ij'))"),
    ),
    # SciPy refuses sparse matrices of float16, so the product is computed in float32 and rounded,
    # as it is on CuPy.
    "chainer.functions.math.sparse_matmul": (
        (
            "    _m, _k = A_shape\n    _n = B.shape[-1]\n    if B.ndim == 2:\n        sp_A",
            (
                "    _m, _k = A_shape\n"
                "    _n = B.shape[-1]; A_data, B = "
                "(a.astype(numpy.result_type(a, 'f')) for a in (A_data, B))\n"
                "    if B.ndim == 2:\n        sp_A"
            ),
        ),
    ),
    # Arrays of NumPy 2 have an attribute `device`, the string 'cpu', which debug_print printed in
    # place of 'CPU'.
    "chainer.variable": (
        (
            "device = getattr(array, 'device', 'CPU')",
            "device = 'CPU' if xp is numpy else getattr(array, 'device', 'CPU')",
        ),
    ),
    # h5py 3 reads strings as bytes.
    "chainer.serializers.hdf5": (
        (
            "dataset = self.group[key]",
            "dataset = self.group[key]; dataset = dataset.asstr() if dataset.dtype.kind == 'O' "
            "else dataset",
        ),
    ),
    # A positional `out` is deprecated (NumPy 2.5).
    "chainer.dataset.convert": (
        (
            "numpy.maximum(shape, array.shape, shape)",
            "numpy.maximum(shape, array.shape, out=shape)",
        ),
    ),
    # Thread.setDaemon is deprecated (Python 3.10).
    "chainer.iterators.multiprocess_iterator": (
        ("thread.setDaemon(True)", "thread.daemon = True"),
    ),
    # Assigning to `shape` is deprecated (NumPy 2.5). The arrays are contiguous, so reshape gives a
    # view.
    "chainer.links.activation.maxout": (
        (
            (
                "array.shape = (out_size, pool_size, in_size)\n"
                "                initialW_orig(array)\n"
                "                array.shape = (linear_out_size, in_size)\n"
            ),
            "initialW_orig(array.reshape(out_size, pool_size, in_size))\n\n\n",
        ),
        (
            (
                "array.shape = (out_size, pool_size)\n"
                "                initial_bias_orig(array)\n"
                "                array.shape = linear_out_size,\n"
            ),
            "initial_bias_orig(array.reshape(out_size, pool_size))\n\n\n",
        ),
    ),
    # Generated by a protoc whose output protobuf 4 and later refuse. The serialized description is
    # all that is needed: the classes are built from it, and the rest of the file becomes one long
    # string that is thrown away.
    "chainer.links.caffe.protobuf3.caffe_pb2": (
        (
            (
                "from google.protobuf import descriptor as _descriptor\n"
                "from google.protobuf import message as _message\n"
                "from google.protobuf import reflection as _reflection\n"
            ),
            (
                "from google.protobuf import descriptor_pool as _descriptor_pool\n"
                "from google.protobuf.internal import builder as _builder\n\n"
            ),
        ),
        (
            (
                "DESCRIPTOR = _descriptor.FileDescriptor(\n"
                "  name='caffe.proto',\n"
                "  package='caffe',\n"
                "  syntax='proto2',\n"
                "  serialized_pb=_b("
            ),
            "DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(\n\n\n\n  _b(",
        ),
        (
            "_sym_db.RegisterFileDescriptor(DESCRIPTOR)\n\n",
            (
                "_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())\n"
                "_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals()); r'''\n"
            ),
        ),
        ("# @@protoc_insertion_point(module_scope)", "'''"),
    ),
    # pkg_resources is gone (setuptools 81). `packaging` comes with pytest, which chainer.testing is
    # for.
    "chainer.testing.helper": (
        (
            "import pkg_resources\n",
            (
                "import importlib.metadata as _metadata; "
                "import packaging.requirements as _requirements\n"
            ),
        ),
        (
            "    ws = pkg_resources.WorkingSet()\n    try:\n        ws.require(*requirements)\n",
            (
                "    wanted = map(_requirements.Requirement, requirements)\n    try:\n"
                "        if any(_metadata.version(r.name) not in r.specifier for r in wanted): "
                "raise _metadata.PackageNotFoundError\n"
            ),
        ),
        (
            "except pkg_resources.ResolutionError:",
            "except _metadata.PackageNotFoundError:",
        ),
    ),
    # CuPy 14, as in resize_images. Compiled for float16, float32 and float64, not run.
    "chainer.links.loss.hierarchical_softmax": (
        (
            "atomicAdd(&gx[x_ind], g * w[w_ind]);",
            "atomicAdd(&gx[x_ind], (T)(g * w[w_ind]));",
        ),
        (
            "atomicAdd(&gw[w_ind], g * x[x_ind]);",
            "atomicAdd(&gw[w_ind], (T)(g * x[x_ind]));",
        ),
    ),
    # CuPy 14, as in resize_images. Compiled for float16, float32 and float64, not run.
    "chainer.functions.loss.negative_sampling": (
        ("gi * x[(i / m) * c + j]);", "(T)(gi * x[(i / m) * c + j]));"),
    ),
    # CuPy 14 includes the definition of float16 only where an argument has that type. Compiled, not
    # run.
    "chainer.training.updaters.multiprocess_parallel_updater": (
        (
            "'_memcpy_gather',\n",
            "'_memcpy_gather', preamble='#include <cupy/float16.cuh>',\n",
        ),
        (
            "'_memcpy_scatter',\n",
            "'_memcpy_scatter', preamble='#include <cupy/float16.cuh>',\n",
        ),
    ),
    # int() of an array of shape (1,) is deprecated (NumPy 1.25).
    "chainermn.iterators.multi_node_iterator": (("int(_size)", "int(_size.item())"),),
    # A bug of the release: MPI added into a copy of a gradient whose memory is not in C order, as
    # that of a transposed weight is, so that each process kept its own, divided by their number.
    "chainermn.communicators.mpi_communicator_base": (
        (
            "            array_b32 = recvbuf\n",
            (
                "            array_b32 = chainer.backend.get_array_module(recvbuf)"
                ".ascontiguousarray(recvbuf)\n"
            ),
        ),
        (
            (
                "        if is_float16:\n"
                "            recvbuf[...] = array_b32.astype(numpy.float16)\n\n"
                "        recvbuf *= 1.0 / self.mpi_comm.size"
            ),
            (
                "        if array_b32 is not recvbuf:\n"
                "            recvbuf[...] = array_b32.astype(recvbuf.dtype)\n\n"
                "        recvbuf *= 1.0 / self.mpi_comm.size"
            ),
        ),
    ),
    # A bug of the release: a link without gamma or beta has them all the same, as None.
    "chainermn.links.create_mnbn_model": (
        ("use_gamma=hasattr(link, 'gamma')", "use_gamma=link.gamma is not None"),
        ("use_beta=hasattr(link, 'beta')", "use_beta=link.beta is not None"),
    ),
    # A link's own __call__ bypasses link hooks, and any other `forward` given to the link, as for
    # shares that differ.
    "chainermn.links.batch_normalization": (
        (
            "def __call__(self, x, finetune=False):",
            "def forward(self, x, finetune=False):",
        ),
    ),
}
