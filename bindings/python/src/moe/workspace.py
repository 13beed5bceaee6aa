"""Workspaces: the scratch of one thread or stream."""
from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

from . import abi
from .arrays import Array, check_dense, check_writable, stream_address, view
from .enums import DeviceKind
from .handle import Handle, using
from .loading import library
from .plan import Plan
from .runtime import Runtime, kept_by


class Faults(NamedTuple):
    faults: int  # bits of Fault
    n_skipped: int


class Workspace(Handle):
    """One per concurrent thread or stream; serves every plan of its device whose need fits, one call after the other.

    Workspace(plan) is as large as the plan needs at its max_tokens. host_memory and device_memory are arrays of bytes
    of the caller's to use instead of the runtime's memory.
    """

    destroy = "moe_workspace_destroy"

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        device: DeviceKind | str | int = DeviceKind.AUTO,
        device_index: int = 0,
        host_bytes: int = 0,
        device_bytes: int = 0,
        host_memory: Array | None = None,
        device_memory: Array | None = None,
        stream: Any = None,
        runtime: Runtime | None = None,
    ) -> None:
        desc = abi.WorkspaceDesc(device=DeviceKind.of(device), device_index=device_index)
        desc.stream = stream_address(stream)
        desc.host_bytes, desc.device_bytes = host_bytes, device_bytes
        given = {"host": host_memory, "device": device_memory}
        views = {space: view(f"{space}_memory", memory) for space, memory in given.items() if memory is not None}
        for space, found in views.items():
            check_dense(found)
            check_writable(found)
            setattr(desc, f"{space}_memory", found.address)
            setattr(desc, f"{space}_bytes", found.n_bytes)
        out = c.c_void_p()
        with using(runtime, plan) as [means, address]:
            desc.plan = address
            library().call("moe_workspace_create", means, c.addressof(desc), c.addressof(out))
        kept = tuple(found.owner for found in views.values())
        super().__init__(out.value or 0, (*kept_by(runtime), *kept))

    def status(self) -> Faults:
        """What went wrong at run time in calls that have finished, and forgets it. Does not synchronise."""
        found = abi.WorkspaceFaults()
        with self.use() as workspace:
            self._library.call("moe_workspace_status", workspace, c.addressof(found))
        return Faults(found.faults, found.n_skipped)
