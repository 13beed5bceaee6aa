"""Models that tests run with and without the plug-in, each time in a process of its own."""
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

HERE = pathlib.Path(__file__).parent
PACKAGES, PLUGIN = os.environ["PACKAGES"], os.environ["PLUGIN"]

# name: architecture, formats by role, sizes, the first package that has the form.
CASES = {
    "qwen3moe-f32": ("qwen3moe", {}, {}, "3.14.2"),
    "mixtral-f32": ("mixtral", {}, {}, "3.14.2"),
    "gpt-oss-f32": ("gpt-oss", {}, {}, "3.14.2"),
    "deepseek2-f32": ("deepseek2", {}, {}, "3.14.2"),
    "llama4-f32": ("llama4", {}, {}, "3.14.2"),
    "top-1-f32": ("mixtral", {}, {"top_k": 1}, "3.14.2"),
    "odd-f32": ("qwen3moe", {}, {"intermediate": 80}, "3.14.2"),
    "many-f32": ("mixtral", {}, {"intermediate": 64, "experts": 80}, "3.14.2"),
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
    "dense-q4_K": ("qwen3moe", {"all": "q4_K", "dense": "q4_K"}, {}, "3.14.2"),
    "scales-q8_0": ("qwen3moe", {"all": "q8_0"}, {"has_scales": True}, "3.21.1"),
}


def libraries(version):
    return packages.libraries(PACKAGES, version)


def python(code, *arguments, **environment):
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=os.environ | environment,
                          capture_output=True, text=True)


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
                base = libllama.Llama(libraries(list(packages.VERSIONS)[-1])).base
                self.quantizer = quantize.Quantizer(base)
            arch, formats, sizes, _ = CASES[name]
            self.n_layers[name] = models.make(path, arch, self.quantizer, formats, as_f32, **sizes)
        return str(path)


def run(version, tasks, has_plugin, folder, **variables):
    job = pathlib.Path(folder) / "tasks.json"
    job.write_text(json.dumps(tasks))
    results = pathlib.Path(folder) / f"results-{version}-{has_plugin}.npz"
    environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"} | variables
    if has_plugin:
        environment["GGML_BACKEND_PATH"] = PLUGIN
    command = [sys.executable, str(HERE / "run_models.py"), libraries(version), str(job), str(results)]
    subprocess.run(command, env=environment, check=True, cwd=HERE)
    return dict(np.load(results))


class TestCase(unittest.TestCase):
    """Has the models, and a folder that goes with the class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.files = Files(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
