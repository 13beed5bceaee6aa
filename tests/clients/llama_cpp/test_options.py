"""How a model is loaded and run: mapped or read, threads, long prompts, values that are watched, an abort.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 test_options.py"""
import os
import tempfile
import unittest

import numpy as np

import libllama
import packages
import runs
from run_models import COUNTS

# They have the first and the last interface.
VERSIONS = (list(packages.VERSIONS)[0], list(packages.VERSIONS)[-1])


class Options(runs.TestCase):
    def run_each(self, version, case, options, has_plugin=True, **variables):
        tasks = [{"name": name, "path": self.files.path(case), **each} for name, each in options.items()]
        return runs.run(version, tasks, has_plugin, self.folder.name, **variables)

    def both(self, results, name):
        return np.concatenate([results[f"{name}/prompt"], results[f"{name}/decode"]])

    def test_mapped_or_read(self):
        for version in VERSIONS:
            found = self.run_each(version, "qwen3moe-q4_K_M", {"mapped": {}, "read": {"use_mmap": False}})
            np.testing.assert_array_equal(self.both(found, "read"), self.both(found, "mapped"))

    def test_the_second_model_of_a_process(self):
        # Its weights may lie where those of the first did.
        tasks = [{"name": str(i), "path": self.files.path(case), "use_mmap": False} for i, case in
                 enumerate(("gpt-oss-f32", "qwen3moe-f32", "gpt-oss-f32", "gpt-oss-mxfp4", "gpt-oss-f32"))]
        found = runs.run(VERSIONS[-1], tasks, True, self.folder.name)
        for i in ("2", "4"):
            np.testing.assert_array_equal(self.both(found, i), self.both(found, "0"))

    def test_two_threads(self):
        found = self.run_each(VERSIONS[-1], "qwen3moe-f32", {"two": {"threads": 2}, "one": {}})
        difference = np.abs(self.both(found, "one") - self.both(found, "two")).max()
        self.assertLessEqual(difference, 1e-5 * np.abs(self.both(found, "two")).max())

    def test_threads_of_ggml(self):
        # With a pool that spins, one that sleeps, and none; results do not depend on whose threads compute.
        case = "qwen3moe-q4_K_M"
        options = {"spins": {"threads": 2, "polling": 50}, "sleeps": {"threads": 2, "polling": 0}, "none": {"threads": 2},
                   "one": {}}
        for version in packages.VERSIONS:
            with self.subTest(version):
                found = self.run_each(version, case, options)
                own = self.run_each(version, case, options, MOE_GGML_THREADS="own")
                for name in options:
                    counts = dict(zip(COUNTS, found[f"{name}/counts"]))
                    self.assertEqual(counts["shared"], 0 if name == "one" else counts["graphs"], name)
                    self.assertGreater(counts["chains"], 0)
                    self.assertEqual(dict(zip(COUNTS, own[f"{name}/counts"]))["shared"], 0, name)
                    np.testing.assert_array_equal(self.both(own, name), self.both(found, name))

    def test_other_matrices_are_quantized(self):
        # With AMX ggml multiplies them by tiles, between libmoe's.
        options = {"long": {"sequences": 8, "tokens": 40}}
        for version in VERSIONS:
            stock = self.both(self.run_each(version, "dense-q4_K", options, has_plugin=False), "long")
            found = self.both(self.run_each(version, "dense-q4_K", options), "long")
            self.assertLess(np.median(np.abs(found - stock).max(axis=1)), 0.2)

    def test_activations(self):
        case, logits = "qwen3moe-q4_K", {}
        for form in ("", "bf16", "f32", "int8"):
            logits[form] = self.both(self.run_each(VERSIONS[-1], case, {"a": {}}, MOE_GGML_ACTIVATIONS=form), "a")
        np.testing.assert_array_equal(logits[""], logits["bf16"])
        tasks = [{"name": "a", "path": self.files.path(case)}, {"name": "b", "path": self.files.path(case, as_f32=True)}]
        found = runs.run(VERSIONS[-1], tasks, False, self.folder.name)
        exact = self.both(found, "b")
        # A token whose routing turns on the last digits is far off alone, so medians.
        off = {form: np.median(np.abs(each - exact).max(axis=1)) for form, each in logits.items()}
        off["stock"] = np.median(np.abs(self.both(found, "a") - exact).max(axis=1))
        self.assertLess(off["f32"], 1e-5)
        self.assertGreater(off["bf16"], 1e-4)
        self.assertLess(off["bf16"], off["stock"] / 2)
        self.assertLess(off["int8"], 2 * off["stock"])
        self.assertNotEqual(off["int8"], off["bf16"])

    def test_a_long_prompt(self):
        # More tokens in one call than a first plan takes.
        options = {"long": {"sequences": 8, "tokens": 80}}
        stock = self.run_each(VERSIONS[-1], "gpt-oss-f32", options, has_plugin=False)
        found = self.run_each(VERSIONS[-1], "gpt-oss-f32", options)
        a, b = self.both(found, "long"), self.both(stock, "long")
        # A few of 648 tokens choose other experts for a difference in the last digit, and what follows them sees it.
        off = np.abs(a - b).max(axis=1) / np.abs(b).max()
        self.assertLessEqual(np.median(off), 1e-5)
        self.assertGreater(np.mean(off < 1e-5), 0.9)

    def test_values_that_are_watched(self):
        # Every operation is then a graph of its own: no chain, the same result.
        for version in VERSIONS:
            for case in ("qwen3moe-f32", "gpt-oss-f32", "odd-f32", "deepseek2-q4_K"):
                with self.subTest(f"{version} {case}"):
                    found = self.run_each(version, case, {"plain": {}, "watched": {"watch": "all"}},
                                          MOE_GGML_ACTIVATIONS="f32")
                    counts = dict(zip(COUNTS, found["watched/counts"]))
                    self.assertEqual((counts["chains"], counts["slot_chains"]), (0, 0))
                    self.assertGreater(counts["matrices"], 0)
                    self.assertGreater(counts["loops"], 0)
                    a, b = self.both(found, "watched"), self.both(found, "plain")
                    self.assertLessEqual(np.abs(a - b).max(), 1e-5 * np.abs(b).max())


class Abort(unittest.TestCase):
    def test_abort_callback(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = runs.python(ABORT, runs.HERE, runs.libraries(VERSIONS[-1]), runs.Files(folder).path("qwen3moe-f32"),
                                 GGML_BACKEND_PATH=runs.PLUGIN)
        self.assertEqual((answer.returncode, answer.stdout), (0, "2 0\n"), answer.stderr)


class Pools(unittest.TestCase):
    def test_pools_that_come_and_go(self):
        for version in VERSIONS:
            with tempfile.TemporaryDirectory() as folder:
                answer = runs.python(POOLS, runs.HERE, runs.libraries(version), runs.Files(folder).path("qwen3moe-q4_K"),
                                     GGML_BACKEND_PATH=runs.PLUGIN)
            self.assertEqual((answer.returncode, answer.stdout), (0, "same True\n" * 8), answer.stderr)
            self.assertEqual(answer.stderr, "")


class WarmUp(unittest.TestCase):
    def test_every_expert_of_every_token(self):
        # llama.cpp's programs do so before the first prompt: more slots than moe.h takes at once.
        for version in VERSIONS:
            with tempfile.TemporaryDirectory() as folder:
                answer = runs.python(WARM_UP, runs.HERE, runs.libraries(version), runs.Files(folder).path("many-f32"),
                                     GGML_BACKEND_PATH=runs.PLUGIN)
            self.assertEqual((answer.returncode, answer.stdout), (0, "0 0 0\n"), answer.stderr)
            self.assertEqual(answer.stderr, "")


# Statuses of a warm-up and of a decode after it, and how many matrices ran alone.
WARM_UP = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import libllama, run_models
library = libllama.Llama(sys.argv[2])
context = libllama.Context(libllama.Model(library, sys.argv[3]))
library.llama.llama_set_warmup(context.handle, ctypes.c_bool(True))
first = context.decode([(0, 0, 1), (0, 1, 2)])
library.llama.llama_set_warmup(context.handle, ctypes.c_bool(False))
print(first, context.decode([(0, 2, 3)]), run_models.counts_of_plugin()[3])
"""

# The same token under pools that are attached and freed, threads that become more and fewer, two contexts by turns, and contexts
# that end; each time all graphs are on ggml's threads.
POOLS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import libllama, run_models
library = libllama.Llama(sys.argv[2])
model = libllama.Model(library, sys.argv[3])
expected = None
def check(context):
    global expected
    before = run_models.counts_of_plugin()
    library.llama.llama_memory_clear(ctypes.c_void_p(library.llama.llama_get_memory(context.handle)), ctypes.c_bool(True))
    assert context.decode([(0, 0, 5), (0, 1, 9)]) == 0
    counts = run_models.counts_of_plugin() - before
    logits = context.logits(2).tobytes()
    expected = expected or logits
    print("same", logits == expected and counts[0] > 0 and counts[5] == counts[0])
library.llama.llama_get_memory.restype = ctypes.c_void_p
first = libllama.Context(model, n_threads=2)
check(first)
first.attach_pool(2, 50)
check(first)
second = libllama.Context(model, n_threads=2)
check(second)
first.detach_pool()
check(first)
first.set_n_threads(3, 3)
check(first)
first.close()
second.set_n_threads(2, 2)
check(second)
second.attach_pool(2, 0)
check(second)
second.detach_pool()
second.close()
third = libllama.Context(model, n_threads=2)
check(third)
"""

# A decode that the callback ends in the plug-in's part of the graph, then one that it lets through.
ABORT = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
import libllama, run_models
library = libllama.Llama(sys.argv[2])
model = libllama.Model(library, sys.argv[3])
wants_abort = True
def on_abort():
    return wants_abort and run_models.counts_of_plugin()[0] > 1
context = libllama.Context(model, on_abort=on_abort)
first = context.decode([(0, 0, 1)])
wants_abort = False
print(first, context.decode([(0, 0, 1)]))
"""

if __name__ == "__main__":
    unittest.main()
