"""What the five handles have in common: closing once, never under a running call, and from the garbage
collector when nobody closed."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from .errors import ClosedError
from .loading import Library, library

Self = TypeVar("Self", bound="Handle")


class Handle:
    """Owns one handle of the library. destroy names the function that ends it.

    close() while another thread is inside a call with this handle takes effect when that call returns.
    """

    destroy = ""

    def __init__(self, pointer: int, keep: tuple[Any, ...] = (), lib: Library | None = None) -> None:
        self._library = lib or library()
        self._pointer = pointer
        self._keep = keep  # what the library refers to as long as the handle lives: callbacks, borrowed memory
        self._users = 0
        self._closed = False
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def use(self) -> Iterator[int]:
        """The address, for the length of a call."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"this {type(self).__name__} is closed")
            self._users += 1
        try:
            yield self._pointer
        finally:
            self._release()

    def hold(self) -> Hold:
        """Keeps the handle alive as long as the result: for memory that belongs to it."""
        return Hold(self)

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            self._destroy_if_idle()

    def _destroy_if_idle(self) -> None:
        if self._closed and not self._users and self._pointer:
            pointer, self._pointer = self._pointer, 0
            self._library.ask(self.destroy, pointer)
            self._keep = ()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends the handle. A second time does nothing."""
        with self._lock:
            self._closed = True
            self._destroy_if_idle()

    def __enter__(self: Self) -> Self:
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0):  # an __init__ that failed has none
            self.close()


class Hold:
    """A use that lasts until it is garbage."""

    def __init__(self, handle: Handle) -> None:
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(handle.use())

    def __del__(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def using(*handles: Handle | None) -> Iterator[list[int | None]]:
    """The addresses of several handles for the length of a call; None is NULL."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(handle.use()) if handle is not None else None for handle in handles]
