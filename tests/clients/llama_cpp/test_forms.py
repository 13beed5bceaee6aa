"""Every form in which a graph may write a layer's experts, computed by the plug-in's backend, against numpy in float64.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 test_forms.py [VERSION]      every version in a process of its own"""
import ctypes
import math
import os
import subprocess
import sys
import unittest

import numpy as np

import graphs
import libllama
import packages
from run_models import COUNTS, counts_of_plugin

os.environ["GGML_BACKEND_PATH"] = os.environ["PLUGIN"]

E, K, T, H, I = 6, 3, 5, 64, 48
# More than moe.h takes at once, as llama.cpp has when it warms up.
MANY = 100
LIMIT, ALPHA = 0.7, 1.3

erf = np.vectorize(math.erf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


GATED = {
    "reglu": lambda g, u: np.maximum(g, 0) * u,
    "geglu": lambda g, u: gelu_tanh(g) * u,
    "geglu_erf": lambda g, u: g / 2 * (1 + erf(g / math.sqrt(2))) * u,
    "geglu_quick": lambda g, u: g * sigmoid(1.702 * g) * u,
    "swiglu": lambda g, u: g * sigmoid(g) * u,
    "swiglu_oai": lambda g, u: np.minimum(g, LIMIT) * sigmoid(ALPHA * np.minimum(g, LIMIT)) * (np.clip(u, -LIMIT, LIMIT) + 1),
    "swiglu_clamp": lambda g, u: np.minimum(g, LIMIT) * sigmoid(np.minimum(g, LIMIT)) * np.clip(u, -LIMIT, LIMIT),
    "step": lambda g, u: np.minimum(g * sigmoid(g), LIMIT) * np.clip(u, -LIMIT, LIMIT),
    "situ": lambda g, u: ALPHA * np.tanh(g / ALPHA) * sigmoid(g) * LIMIT * np.tanh(u / LIMIT),
    "silu_mul": lambda g, u: g * sigmoid(g) * u,
}
PLAIN = {
    "silu": lambda u: u * sigmoid(u),
    "gelu": gelu_tanh,
    "gelu_erf": lambda u: u / 2 * (1 + erf(u / math.sqrt(2))),
    "gelu_quick": lambda u: u * sigmoid(1.702 * u),
    "relu": lambda u: np.maximum(u, 0),
    "relu_sqr": lambda u: np.maximum(u, 0) ** 2,
}
# Not in moe.h: matrices run alone.
NOT_A_CHAIN = {"reglu", "relu"}


def long(n):
    return ctypes.c_int64(n)


def size(n):
    return ctypes.c_size_t(n)


def real(x):
    return ctypes.c_float(x)


class Layer:
    """A graph of one layer and its result in float64."""

    def __init__(self, backend, activation, top_k=K, merged="", biases=False, scales="", x_by_slot=False, has_sum=True,
                 up_first=False, n_experts=E, seed=1):
        self.random = np.random.default_rng(seed)
        self.g = graphs.Graph(backend)
        self.activation, self.top_k, self.merged, self.biases, self.scales = activation, top_k, merged, biases, scales
        self.up_first, self.has_sum, self.n_experts = up_first, has_sum, n_experts
        self.ids = np.array([self.random.permutation(n_experts)[:top_k] for _ in range(T)], np.int32)
        self.x = self.numbers(T, top_k if x_by_slot else 1, H)
        self.routing = np.abs(self.numbers(T, top_k, 1)).astype(np.float32)
        # Ids are a view of longer rows, as those of argsort are.
        rows = np.concatenate([self.ids, np.full((T, n_experts - top_k), -7, np.int32)], axis=1)
        whole = self.g.input(rows)
        self.ids_node = self.g.make("view_2d", whole, long(top_k), long(T), size(4 * n_experts), size(0))
        self.x_node = self.g.input(self.x)
        self.build()

    def numbers(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    # A matrix of every slot's expert times x: the node, and the values.
    def project(self, role, rows, x_node, x):
        columns = x.shape[-1]
        weights = self.numbers(self.n_experts, rows, columns) / math.sqrt(columns)
        node = self.g.make("mul_mat_id", self.g.weight(weights), x_node, self.ids_node)
        x = np.broadcast_to(x, (T, self.top_k, columns)).astype(np.float64)
        values = np.einsum("tkrc,tkc->tkr", weights[self.ids].astype(np.float64), x)
        if role in self.scales:
            scales = np.abs(self.numbers(self.n_experts))
            each = self.g.make("reshape_3d", self.g.weight(scales), long(1), long(self.n_experts), long(1))
            each = self.g.make("repeat_4d", each, long(1), long(self.n_experts), long(T), long(1))
            node = self.g.make("mul", node, self.g.make("get_rows", each, self.ids_node))
            values = values * scales[self.ids][..., None]
        if self.biases:
            bias = self.numbers(self.n_experts, rows)
            node = self.g.make("add_id", node, self.g.weight(bias), self.ids_node)
            values = values + bias[self.ids]
        return node, values

    def halves(self, node):
        width = 4 * 2 * I
        parts = [self.g.make("view_3d", node, long(I), long(self.top_k), long(T), size(width), size(width * self.top_k), size(at))
                 for at in (0, 4 * I)]
        return parts[::-1] if self.merged == "up first" else parts

    def gated_node(self, gate, up):
        g, name = self.g, self.activation
        if name == "swiglu_oai":
            return g.make("swiglu_oai", gate, up, real(ALPHA), real(LIMIT))
        if name == "swiglu_clamp":
            return g.make("swiglu_clamp", gate, up, real(LIMIT))
        if name == "step":
            up = g.make("clamp", up, real(-LIMIT), real(LIMIT))
            return g.make("mul", g.make("clamp", g.make("silu", gate), real(-math.inf), real(LIMIT)), up)
        if name == "situ":
            soft = lambda x, beta: g.make("scale", g.make("tanh", g.make("scale", x, real(1 / beta))), real(beta))
            return g.make("mul", g.make("mul", soft(gate, ALPHA), g.make("sigmoid", gate)), soft(up, LIMIT))
        if name == "silu_mul":
            return g.make("mul", g.make("silu", gate), up)
        return g.make(f"{name}_split", gate, up)

    def activate(self):
        if self.activation in PLAIN:
            node, up = self.project("up", I, self.x_node, self.x)
            inside = self.g.make("relu" if self.activation == "relu_sqr" else self.activation, node)
            self.inner = self.g.make("sqr", inside) if self.activation == "relu_sqr" else inside
            return PLAIN[self.activation](up)
        if self.merged:
            node, both = self.project("up", 2 * I, self.x_node, self.x)
            gate, up = both[..., :I], both[..., I:]
            if self.merged == "one value":
                self.inner = self.g.make(self.activation, node)
            elif self.merged == "one value, swapped":
                self.inner, gate, up = self.g.make(f"{self.activation}_swapped", node), up, gate
            else:
                self.inner = self.gated_node(*self.halves(node))
                gate, up = (up, gate) if self.merged == "up first" else (gate, up)
        else:
            gate_node, gate = self.project("gate", I, self.x_node, self.x)
            up_node, up = self.project("up", I, self.x_node, self.x)
            self.g.expand(*((up_node, gate_node) if self.up_first else (gate_node, up_node)))
            self.inner = self.gated_node(gate_node, up_node)
        return GATED[self.activation](gate, up)

    def build(self):
        values = self.activate()
        node, rows = self.project("down", H, self.inner, values)
        self.result, self.shape, self.expected = node, (T, self.top_k, H), rows
        self.g.expand(node)
        if not self.has_sum:
            return
        weighted = self.g.make("mul", node, self.g.input(self.routing))
        slots = [self.g.make("view_2d", weighted, long(H), long(T), size(4 * H * self.top_k), size(4 * H * j))
                 for j in range(self.top_k)]
        self.g.expand(*slots)
        total = slots[0]
        for slot in slots[1:]:
            total = self.g.make("add", total, slot)
        self.result = self.g.make("cont", total) if self.top_k == 1 else total
        self.shape, self.expected = (T, H), (rows * self.routing).sum(axis=1)
        self.g.expand(self.result)


class Forms(unittest.TestCase):
    version = list(packages.VERSIONS)[-1]

    @classmethod
    def setUpClass(cls):
        cls.library = libllama.Llama(packages.libraries(os.environ["PACKAGES"], cls.version))
        cls.backend = graphs.Backend(cls.library)
        cls.n = 0

    @classmethod
    def tearDownClass(cls):
        cls.backend.release()
        print(f"ggml {cls.library.version}: {cls.n} forms", flush=True)

    def check(self, activation, expect="chains", more_results=(), **form):
        name = f"{activation} {form}"
        with self.subTest(name):
            layer = Layer(self.backend, activation, **form)
            before = counts_of_plugin()
            results = [(layer.result, layer.shape)] + [(getattr(layer, which), shape) for which, shape in more_results]
            found = layer.g.compute(*results)
            off = np.abs(found[0] - layer.expected).max() / np.abs(layer.expected).max()
            self.assertLess(off, 1e-5, name)
            counts = dict(zip(COUNTS, counts_of_plugin() - before))
            self.assertEqual(counts["graphs"], 1)
            for kind in ("chains", "slot_chains"):
                self.assertEqual(counts[kind], int(kind == expect), f"{name}: {counts}")
            if expect != "loops":
                self.assertEqual(counts["matrices"] + counts["loops"] > 0, expect == "matrices", name)
            type(self).n += 1
            return found

    def gated(self):
        return [name for name in GATED if name != "swiglu_clamp" or self.backend.has("ggml_swiglu_clamp")]

    def test_activations(self):
        for activation in self.gated() + list(PLAIN):
            self.check(activation, "matrices" if activation in NOT_A_CHAIN else "chains")

    def test_biases(self):
        for activation in self.gated() + list(PLAIN):
            self.check(activation, "matrices" if activation in NOT_A_CHAIN else "chains", biases=True)

    def test_merged(self):
        for merged in ("gate first", "up first"):
            for activation in self.gated():
                for biases in (False, True):
                    self.check(activation, "matrices" if activation in NOT_A_CHAIN else "chains", merged=merged, biases=biases)
        for activation in ("swiglu", "geglu", "reglu"):
            for merged in ("one value", "one value, swapped"):
                self.check(activation, "matrices" if activation in NOT_A_CHAIN else "chains", merged=merged)

    def test_scales(self):
        # moe.h has a scale per expert with NVFP4 alone. In float32 the parts run one by one.
        for scales in ("gate", "up", "down", "gate up down"):
            self.check("swiglu", "matrices", scales=scales)

    def test_slots(self):
        for top_k in (1, 2, E):
            self.check("swiglu", top_k=top_k)
        for activation, expect in (("swiglu", "chains"), ("reglu", "matrices")):
            self.check(activation, expect, top_k=MANY, n_experts=MANY + 28)
        self.check("swiglu", "slot_chains", top_k=MANY, n_experts=MANY, has_sum=False)

    def test_x_of_each_slot(self):
        self.check("swiglu", "slot_chains", x_by_slot=True, has_sum=False)
        self.check("swiglu_oai", "slot_chains", x_by_slot=True, has_sum=False, biases=True)

    def test_without_a_sum(self):
        self.check("swiglu", "slot_chains", has_sum=False)
        self.check("relu_sqr", "slot_chains", has_sum=False, biases=True)

    def test_order_of_nodes(self):
        self.check("swiglu", up_first=True)
        self.check("swiglu", up_first=True, biases=True)

    def test_an_inner_value_that_is_wanted(self):
        # The chain is taken apart, so that the value exists.
        found = self.check("swiglu", "matrices", more_results=[("inner", (T, K, I))])
        if found:
            self.assertTrue(np.isfinite(found[1]).all() and np.abs(found[1]).max() > 0)


def main(versions):
    if len(versions) == 1:
        Forms.version = versions[0]
        unittest.main(argv=sys.argv[:1])
    failed = [version for version in versions or packages.VERSIONS
              if subprocess.run([sys.executable, __file__, version]).returncode]
    sys.exit(f"failed with {failed}" if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
