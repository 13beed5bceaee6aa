"""Whole models: a stock llama.cpp with the plug-in against the same llama.cpp without it.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 -m unittest test_models

In float32 the logits agree to 1e-5. Of quantized experts the reference is the same model with the weights dequantized to
float32: the plug-in may be off by no more than stock, which rounds activations to bytes. Sequences in which some token's
choice of experts hangs on less than 1e-3 are left out and counted."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import libllama
import models
import packages
import quantize
from run_models import COUNTS

HERE = pathlib.Path(__file__).parent
PACKAGES, PLUGIN = os.environ["PACKAGES"], os.environ["PLUGIN"]
NEWEST = list(packages.VERSIONS)[-1]

SEQUENCES, LENGTH = 6, 5
LEAST_GAP = 1e-3
# A prompt and a decode.
N_CALLS = 2

# name: architecture, formats by role, sizes, the first package that has the form.
CASES = {
    "qwen3moe-f32": ("qwen3moe", {}, {}, "3.14.2"),
    "mixtral-f32": ("mixtral", {}, {}, "3.14.2"),
    "gpt-oss-f32": ("gpt-oss", {}, {}, "3.14.2"),
    "deepseek2-f32": ("deepseek2", {}, {}, "3.14.2"),
    "llama4-f32": ("llama4", {}, {}, "3.14.2"),
    "top-1-f32": ("mixtral", {}, {"top_k": 1}, "3.14.2"),
    "odd-f32": ("qwen3moe", {}, {"intermediate": 80}, "3.14.2"),
    "merged-f32": ("deepseek2", {}, {"is_merged": True}, "3.19.0"),
    "qwen3moe-q4_K": ("qwen3moe", {"all": "q4_K"}, {}, "3.14.2"),
    "qwen3moe-q4_K_M": ("qwen3moe", {"gate": "q4_K", "up": "q5_K", "down": "q6_K"}, {}, "3.14.2"),
    "qwen3moe-bf16": ("qwen3moe", {"all": "bf16"}, {}, "3.14.2"),
    "qwen3moe-f16": ("qwen3moe", {"all": "f16"}, {}, "3.14.2"),
    "mixtral-q8_0": ("mixtral", {"all": "q8_0"}, {}, "3.14.2"),
    "mixtral-q4_0": ("mixtral", {"all": "q4_0"}, {}, "3.14.2"),
    "gpt-oss-mxfp4": ("gpt-oss", {"all": "mxfp4"}, {}, "3.14.2"),
    "deepseek2-q4_K": ("deepseek2", {"all": "q4_K", "down": "q6_K"}, {}, "3.14.2"),
    "merged-q4_K": ("deepseek2", {"all": "q4_K"}, {"is_merged": True}, "3.19.0"),
    "qwen3moe-nvfp4": ("qwen3moe", {"all": "nvfp4"}, {"has_scales": True}, "3.21.1"),
    "scales-q8_0": ("qwen3moe", {"all": "q8_0"}, {"has_scales": True}, "3.21.1"),
}


def as_numbers(version):
    return [int(part) for part in version.split(".")]


def distance(a, b):
    return float(np.sqrt(np.mean((a.astype(np.float64) - b) ** 2)))


class Files:
    """Models that all versions share, made when they are first wanted."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.quantizer = None
        self.n_layers = {}

    def path(self, name, as_f32=False):
        path = self.folder / f"{name}{'-as-f32' if as_f32 else ''}.gguf"
        if not path.exists():
            if not self.quantizer:
                base = libllama.Llama(packages.libraries(PACKAGES, NEWEST)).base
                self.quantizer = quantize.Quantizer(base)
            arch, formats, sizes, _ = CASES[name]
            self.n_layers[name] = models.make(path, arch, self.quantizer, formats, as_f32, **sizes)
        return str(path)


def run(version, tasks, has_plugin, folder):
    job = pathlib.Path(folder) / "tasks.json"
    job.write_text(json.dumps(tasks))
    results = pathlib.Path(folder) / f"results-{version}-{has_plugin}.npz"
    environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"}
    if has_plugin:
        environment["GGML_BACKEND_PATH"] = PLUGIN
    command = [sys.executable, str(HERE / "run_models.py"), packages.libraries(PACKAGES, version), str(job), str(results)]
    subprocess.run(command, env=environment, check=True, cwd=HERE)
    return dict(np.load(results))


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = Files(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def routing_of(self, name):
        arch, _, sizes, _ = CASES[name]
        defaults = {"qwen3moe": (3, 8), "mixtral": (2, 8), "gpt-oss": (4, 8), "deepseek2": (4, 16), "llama4": (1, 8)}
        top_k, experts = defaults[arch]
        return sizes.get("top_k", top_k), experts

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
        if arch == "llama4":
            # Each slot has an input of its own, already weighted; what is left is the copy of the only slot.
            expected = {"chains": 0, "slot_chains": N_CALLS * layers, "matrices": 0, "loops": N_CALLS * layers}
        elif arch == "deepseek2" and packages.VERSIONS[version] == "0.9.4":
            # This version adds the slots only after the shared expert, in another part of the graph.
            expected = {"chains": 0, "slot_chains": N_CALLS * layers, "matrices": 0, "loops": N_CALLS * layers}
        elif name == "scales-q8_0":
            # Only NVFP4 has a scale per expert in moe.h; here it is applied by loops between the matrices.
            expected = {"chains": 0, "slot_chains": 0, "matrices": 3 * N_CALLS * layers}
        self.assertEqual({key: counts[key] for key in expected}, expected, name)
        self.assertEqual(results[f"{name}/splits"], 2 * layers + 1, name)

    def check_version(self, version):
        names = [name for name, case in CASES.items() if as_numbers(case[3]) <= as_numbers(version)]
        exact = [name for name in names if name.endswith("-f32")]
        rounded = [name for name in names if name not in exact]
        stock = run(version, self.tasks(names) + self.references(names), False, self.folder.name)
        plugin = run(version, self.tasks(names), True, self.folder.name)
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
