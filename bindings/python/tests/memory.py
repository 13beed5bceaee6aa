"""An allocator that keeps a ledger, for the tests of what handles take and give back."""
import ctypes
import threading

import moe


class CountingAllocator:
    def __init__(self):
        libc = ctypes.CDLL(None)
        self._allocate, self._free = libc.aligned_alloc, libc.free
        self._allocate.restype, self._allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2
        self._free.restype, self._free.argtypes = None, [ctypes.c_void_p]
        self._lock = threading.Lock()
        self.living, self.total, self.problems = {}, 0, []

    def allocate(self, n_bytes, alignment, space, stream):
        alignment = max(alignment, ctypes.sizeof(ctypes.c_void_p))
        address = self._allocate(alignment, -(-n_bytes // alignment) * alignment)
        with self._lock:
            self.living[address] = (n_bytes, alignment, space)
            self.total += n_bytes
        if space != moe.Space.HOST or address % alignment:
            self.problems.append(f"{address:#x} of {n_bytes} in {space!r}")
        return address

    def release(self, address, n_bytes, alignment, space, stream):
        given = (n_bytes, max(alignment, ctypes.sizeof(ctypes.c_void_p)), space)
        with self._lock:
            if self.living.pop(address, None) != given:
                self.problems.append(f"{address:#x}: {given} was never allocated")
        self._free(address)
