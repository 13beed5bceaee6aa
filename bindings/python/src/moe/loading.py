"""Finds libmoe, asks for its ABI version before anything else, and calls its functions.

The first library that loads is taken: $MOE_LIBRARY, the one inside this package (a wheel carries it),
libmoe.so.0.1 wherever the dynamic loader looks. load() names one explicitly.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Any, Callable

from .abi import ABI_VERSION, fitting
from .errors import AbiVersionError, LibraryError, error_of
from .prototypes import PROTOTYPES

FILE_NAME = "libmoe.so.0.1"


class Library:
    """One loaded libmoe."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            self.handle = ctypes.CDLL(self.path)
        except OSError as error:
            raise LibraryError(f"libmoe not found: {error}", path=self.path) from None
        self._check_abi()
        self._functions = {name: self._function(name) for name in PROTOTYPES}

    def _check_abi(self) -> None:
        found = self._function("moe_abi_version")()
        if found != ABI_VERSION:
            raise AbiVersionError(self.path, found, ABI_VERSION)

    def _function(self, name: str) -> Callable[..., Any]:
        try:
            function = getattr(self.handle, name)
        except AttributeError:
            raise LibraryError(f"{self.path} lacks the symbol {name}", path=self.path) from None
        function.restype, function.argtypes = PROTOTYPES[name]
        return function

    def _invoke(self, name: str, arguments: tuple[Any, ...]) -> Any:
        kinds = PROTOTYPES[name][1]
        return self._functions[name](*(fitting(name, kind, one) for kind, one in zip(kinds, arguments, strict=True)))

    def function(self, name: str) -> Callable[..., Any]:
        """The function of C as it is: the caller has checked what goes in, and looks at what comes out."""
        return self._functions[name]

    def ask(self, name: str, *arguments: Any) -> Any:
        """Calls a function that cannot fail and gives its result."""
        return self._invoke(name, arguments)

    def text(self, name: str, *arguments: Any) -> str | None:
        """Calls a function that gives a static string."""
        found = self._invoke(name, arguments)
        return None if found is None else found.decode()

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that gives a status and raises the exception of one that is not MOE_OK."""
        status = self._invoke(name, arguments)
        if status:
            raise self.failure(status, name)

    def failure(self, status: int, call: str) -> Exception:
        """The sentence is that of this thread's last failed call, so this comes right after it."""
        sentence = self._functions["moe_last_error"]().decode(errors="replace")
        return error_of(status, sentence, call, self.text("moe_status_name", status) or "")


def candidates() -> list[str]:
    inside = pathlib.Path(__file__).parent / "lib" / FILE_NAME
    named = [os.environ.get("MOE_LIBRARY"), str(inside) if inside.exists() else None, FILE_NAME]
    return [path for path in named if path]


def find() -> Library:
    """The first candidate that loads. One that loads and is of another ABI is an error, not passed over."""
    tried = []
    for path in candidates():
        try:
            ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        return Library(path)
    raise LibraryError("libmoe not found: " + "; ".join(tried))


_lock = threading.Lock()
_loaded: Library | None = None


def load(path: str | os.PathLike[str] | None = None) -> Library:
    """Loads the library that the package uses from then on; path None finds it as above."""
    global _loaded
    with _lock:
        _loaded = Library(path) if path is not None else find()
        return _loaded


def library() -> Library:
    """The library in use, loaded on first use."""
    return _loaded or load()
