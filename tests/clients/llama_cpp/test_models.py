"""Whole models: a stock llama.cpp with the plug-in against the same llama.cpp without it.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 test_models.py

In float32 the logits agree to 1e-5. Of quantized experts the reference is the same model with the weights dequantized to
float32: the plug-in may be off by no more than stock, which rounds activations to bytes. Sequences in which some token's
choice of experts hangs on less than 1e-3 are left out and counted."""
import unittest

import numpy as np

import packages
import runs
from run_models import COUNTS
from runs import CASES

SEQUENCES, LENGTH = 6, 5
LEAST_GAP = 1e-3
# A prompt and a decode.
N_CALLS = 2


def as_numbers(version):
    return [int(part) for part in version.split(".")]


def distance(a, b):
    return float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2)))


class Models(runs.TestCase):
    def routing_of(self, name):
        arch, _, sizes, _ = CASES[name]
        defaults = {"qwen3moe": (3, 8), "mixtral": (2, 8), "gpt-oss": (4, 8), "deepseek2": (4, 16), "llama4": (1, 8)}
        top_k, experts = defaults[arch]
        return sizes.get("top_k", top_k), sizes.get("experts", experts)

    def tasks(self, names, **options):
        return [{"name": name, "path": self.files.path(name), "sequences": SEQUENCES, "tokens": LENGTH, **options}
                for name in names]

    def references(self, names):
        """The same weights in float32, with the scores watched."""
        return [{"name": f"{name}/reference", "path": self.files.path(name, True), "sequences": SEQUENCES, "tokens": LENGTH,
                 "watch": "scores", "routing": self.routing_of(name)} for name in names]

    def kept(self, gaps):
        """Sequences without a close choice; the prompt's tokens come first, then the decoded ones."""
        prompt = gaps[:SEQUENCES * LENGTH].reshape(SEQUENCES, LENGTH).min(axis=1)
        return np.minimum(prompt, gaps[SEQUENCES * LENGTH:]) >= LEAST_GAP

    def logits(self, results, name, kept=None):
        prompt = results[f"{name}/prompt"].reshape(SEQUENCES, LENGTH, -1)
        both = np.concatenate([prompt, results[f"{name}/decode"][:, None]], axis=1)
        return both if kept is None else both[kept]

    def check_calls(self, version, name, results):
        counts = dict(zip(COUNTS, results[f"{name}/counts"]))
        layers = self.files.n_layers[name]
        expected = {"chains": N_CALLS * layers, "slot_chains": 0, "matrices": 0, "loops": 0}
        arch, formats, sizes, _ = CASES[name]
        # 0.9.4 adds the slots only after the shared expert, in another part of the graph.
        is_split = arch in ("deepseek2", "llama4") and packages.VERSIONS[version] == "0.9.4"
        if arch == "llama4":
            # Each slot has an input of its own, already weighted; what is left is a copy of the only slot.
            expected = {"chains": 0, "slot_chains": N_CALLS * layers, "matrices": 0, "loops": 0 if is_split else N_CALLS * layers}
        elif is_split:
            expected = {"chains": 0, "slot_chains": N_CALLS * layers, "matrices": 0, "loops": N_CALLS * layers}
        elif name == "scales-q8_0":
            # Only NVFP4 has a scale per expert in moe.h; here it is applied by loops between the matrices.
            expected = {"chains": 0, "slot_chains": 0, "matrices": 3 * N_CALLS * layers}
        self.assertEqual({key: counts[key] for key in expected}, expected, name)
        self.assertEqual(results[f"{name}/splits"], 2 * layers + 1, name)

    def check_version(self, version):
        names = [name for name, case in CASES.items() if as_numbers(case[3]) <= as_numbers(version) and "dense" not in case[1]]
        exact = [name for name in names if name.endswith("-f32")]
        rounded = [name for name in names if name not in exact]
        stock = runs.run(version, self.tasks(names) + self.references(names), False, self.folder.name)
        plugin = runs.run(version, self.tasks(names), True, self.folder.name)
        self.assertIn("LIBMOE", plugin["devices"])
        for name in names:
            with self.subTest(name):
                self.check_calls(version, name, plugin)
                kept = self.kept(stock[f"{name}/reference/gaps"])
                self.assertGreaterEqual(kept.sum(), 2)
                reference = self.logits(stock, f"{name}/reference", kept)
                off_stock = distance(self.logits(stock, name, kept), reference)
                off_plugin = distance(self.logits(plugin, name, kept), reference)
                if name in exact:
                    difference = np.abs(self.logits(plugin, name, kept) - reference).max() / np.abs(reference).max()
                    self.assertLessEqual(difference, 1e-5)
                else:
                    difference = off_plugin
                    self.assertLessEqual(off_plugin, off_stock)
                print(f"ggml {packages.VERSIONS[version]:7} {name:16} stock {off_stock:.1e} libmoe {off_plugin:.1e} "
                      f"sequences {kept.sum()} of {SEQUENCES}", flush=True)
        self.assertTrue(exact and rounded)


def add_test(version, ggml):
    setattr(Models, f"test_{ggml.replace('.', '_')}", lambda self: self.check_version(version))


for each, its_ggml in packages.VERSIONS.items():
    add_test(each, its_ggml)

if __name__ == "__main__":
    unittest.main()
