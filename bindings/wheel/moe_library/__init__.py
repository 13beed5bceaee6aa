"""libmoe.so as a Python package: where the library and its header lie. The library needs nothing but libc and libm."""
import pathlib

__version__ = "@version@"

# In the package of the binding, beside this one: there is one copy of the library.
_home = pathlib.Path(__file__).resolve().parent.parent / "moe"


def path():
    """The shared library, to be opened with ctypes.CDLL or cffi."""
    return str(_home / "lib" / "@library@")


def include():
    """The folder that holds moe/moe.h and moe/moe_dl.h, for programs that open the library at run time."""
    return str(_home / "include")
