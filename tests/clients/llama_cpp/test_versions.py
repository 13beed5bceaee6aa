"""What the plug-in says to a ggml that it does not know, and to programs that link ggml themselves.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 test_versions.py"""
import pathlib
import subprocess
import tempfile
import unittest

import packages
from runs import HERE, PLUGIN, libraries, python

NEWEST = list(packages.VERSIONS)[-1]

# Loads the fake ggml, then the plug-in, and prints what its ggml_backend_init answers.
ASK = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
plugin = ctypes.CDLL(sys.argv[2])
plugin.ggml_backend_init.restype = ctypes.c_void_p
print(plugin.ggml_backend_init())
"""

# Starts llama.cpp and prints ggml's devices.
START = """
import sys
sys.path.insert(0, sys.argv[1])
import libllama
print(libllama.Llama(sys.argv[2]).devices())
"""

# Registers the plug-in with a list of the functions that it names, but for those of the last arguments.
REGISTER = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import libllama
library = libllama.Llama(sys.argv[2])
plugin = ctypes.CDLL(sys.argv[3])
plugin.moe_ggml_function_at.restype = ctypes.c_char_p
plugin.moe_ggml_function_at.argtypes = [ctypes.c_size_t]
class Function(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]
names = []
while plugin.moe_ggml_function_at(len(names)):
    names.append(plugin.moe_ggml_function_at(len(names)))
with open("/proc/self/maps") as maps:
    cpu = ctypes.CDLL(next(line.split()[-1] for line in maps if "libggml-cpu" in line))
def address(name):
    for part in (library.base, library.ggml, cpu):
        try:
            return ctypes.cast(getattr(part, name.decode()), ctypes.c_void_p)
        except AttributeError:
            pass
    raise LookupError(name)
functions = (Function * len(names))(*[Function(name, address(name)) for name in names if name.decode() not in sys.argv[4:]])
plugin.moe_ggml_register(functions, ctypes.c_size_t(len(names)))
print(library.devices())
"""


class Refusals(unittest.TestCase):
    def ask(self, version, **environment):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "libggml-base.so"
            subprocess.run(["cc", "-shared", "-fPIC", f'-DFAKE_VERSION="{version}"', "-o", library, HERE / "fake_ggml.c"],
                           check=True)
            return python(ASK, library, PLUGIN, **environment)

    def check_refused(self, answer, *words):
        self.assertEqual((answer.returncode, answer.stdout), (0, "None\n"), answer.stderr)
        for word in ("experts stay with ggml", *words):
            self.assertIn(word, answer.stderr)

    def test_versions_that_are_not_known(self):
        for version, word in {"1.0.0": "newer than 0.25", "0.26.0": "newer than 0.25", "0.9.3": "too old", "0.8.99": "too old",
                              "unknown": "no number", "": "no number"}.items():
            with self.subTest(version):
                self.check_refused(self.ask(version), word, version)

    def test_a_newer_version_is_taken_on_request(self):
        # Then its functions are looked up, of which the fake has none.
        self.check_refused(self.ask("0.26.0", MOE_GGML_ACCEPT="0.26.0"), "no function")
        self.check_refused(self.ask("0.27.0", MOE_GGML_ACCEPT="0.26.0"), "newer than 0.25")
        self.check_refused(self.ask("1.0.0", MOE_GGML_ACCEPT="1.0.0"), "newer than 0.25")

    def test_no_ggml(self):
        answer = python("import ctypes, sys; p = ctypes.CDLL(sys.argv[1]); p.ggml_backend_init.restype = ctypes.c_void_p; "
                        "print(p.ggml_backend_init())", PLUGIN)
        self.check_refused(answer, "no library of ggml")

    def test_llama_cpp_with_an_older_interface_goes_on_without_it(self):
        answer = python(START, HERE, libraries(packages.TOO_OLD), GGML_BACKEND_PATH=PLUGIN)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("'CPU': 0", answer.stdout)
        self.assertNotIn("LIBMOE", answer.stdout)
        self.assertIn("too old", answer.stderr)


class Registering(unittest.TestCase):
    """The functions of a package's ggml as a list, as a program gives them that has ggml inside."""

    def test_list_of_functions(self):
        answer = python(REGISTER, HERE, libraries(NEWEST), PLUGIN)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("'LIBMOE': 3", answer.stdout)

    def test_a_list_without_those_for_threads(self):
        answer = python(REGISTER, HERE, libraries(NEWEST), PLUGIN, "ggml_custom_4d", "ggml_graph_compute")
        self.assertEqual((answer.returncode, answer.stderr), (0, ""))
        self.assertIn("'LIBMOE': 3", answer.stdout)

    def test_a_list_that_lacks_one(self):
        answer = python(REGISTER, HERE, libraries(NEWEST), PLUGIN, "ggml_op_name")
        self.assertIn("no function ggml_op_name", answer.stderr)
        self.assertNotIn("LIBMOE", answer.stdout)


if __name__ == "__main__":
    unittest.main()
