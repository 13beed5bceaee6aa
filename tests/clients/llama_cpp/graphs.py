"""Graphs of ggml's public API by ctypes, computed by the plug-in's backend alone."""
import ctypes

import numpy as np

F32, I32 = 0, 26
USAGE_WEIGHTS = 1


class InitParams(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("has_no_data", ctypes.c_bool)]


def _find_device(library, name):
    library.ggml.ggml_backend_dev_by_name.restype = ctypes.c_void_p
    return ctypes.c_void_p(library.ggml.ggml_backend_dev_by_name(name.encode()))


class Backend:
    def __init__(self, library):
        self.base = library.base
        self.device = _find_device(library, "LIBMOE")
        self.buffer_type = self.pointer("ggml_backend_dev_buffer_type", self.device)
        self.handle = self.pointer("ggml_backend_dev_init", self.device, None)

    def pointer(self, function, *arguments):
        function = getattr(self.base, function)
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))

    def has(self, function):
        return hasattr(self.base, function)

    def release(self):
        self.base.ggml_backend_free(self.handle)


class Graph:
    """Makes tensors by name of ggml's function: graph.mul(a, b). Values are numpy arrays, rows first."""

    def __init__(self, backend):
        self.backend, self.base = backend, backend.base
        params = InitParams(1 << 22, None, True)
        self.weights = self.pointer("ggml_init", params)
        self.values = self.pointer("ggml_init", params)
        self.graph = self.pointer("ggml_new_graph_custom", self.values, ctypes.c_size_t(1024), False)
        self.inputs = []

    def pointer(self, function, *arguments):
        return self.backend.pointer(function, *arguments)

    def tensor(self, context, values):
        kind = I32 if values.dtype == np.int32 else F32
        shape = (ctypes.c_int64 * values.ndim)(*values.shape[::-1])
        made = self.pointer("ggml_new_tensor", context, ctypes.c_int(kind), ctypes.c_int(values.ndim), shape)
        self.inputs.append((made, np.ascontiguousarray(values)))
        return made

    def weight(self, values):
        return self.tensor(self.weights, values.astype(np.float32))

    def input(self, values):
        made = self.tensor(self.values, values)
        self.base.ggml_set_input(made)
        return made

    def make(self, function, *arguments):
        """Numbers are passed as ggml's functions of this program take them: int64, size_t as Size, float as Float."""
        return self.pointer(f"ggml_{function}", self.values, *arguments)

    def expand(self, *tensors):
        for tensor in tensors:
            self.base.ggml_build_forward_expand(self.graph, tensor)

    def compute(self, *results):
        """Shapes and results: [(tensor, shape)] -> arrays."""
        for tensor, _ in results:
            self.base.ggml_set_output(tensor)
        buffer = self.pointer("ggml_backend_alloc_ctx_tensors_from_buft", self.weights, self.backend.buffer_type)
        self.base.ggml_backend_buffer_set_usage(buffer, USAGE_WEIGHTS)
        assert not self.not_claimed(), self.not_claimed()
        # The allocator gives memory of values that are used up to later ones, as in a real graph.
        allocator = self.pointer("ggml_gallocr_new", self.backend.buffer_type)
        self.base.ggml_gallocr_alloc_graph.restype = ctypes.c_bool
        assert self.base.ggml_gallocr_alloc_graph(allocator, self.graph)
        for tensor, values in self.inputs:
            self.base.ggml_backend_tensor_set(tensor, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0),
                                              ctypes.c_size_t(values.nbytes))
        assert self.base.ggml_backend_graph_compute(self.backend.handle, self.graph) == 0
        found = []
        for tensor, shape in results:
            values = np.empty(shape, np.float32)
            self.base.ggml_backend_tensor_get(tensor, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0),
                                              ctypes.c_size_t(values.nbytes))
            found.append(values)
        self.base.ggml_gallocr_free(allocator)
        self.base.ggml_backend_buffer_free(buffer)
        self.base.ggml_free(self.weights)
        self.base.ggml_free(self.values)
        return found

    def not_claimed(self):
        """Operations that the device does not claim when llama.cpp's scheduler asks it."""
        self.base.ggml_backend_dev_supports_op.restype = ctypes.c_bool
        self.base.ggml_op_desc.restype = ctypes.c_char_p
        count = self.base.ggml_graph_n_nodes(self.graph)
        nodes = [self.pointer("ggml_graph_node", self.graph, ctypes.c_int(i)) for i in range(count)]
        names = [self.base.ggml_op_desc(node).decode() for node in nodes
                 if not self.base.ggml_backend_dev_supports_op(self.backend.device, node)]
        return [name for name in names if name not in ("VIEW", "RESHAPE")]
