"""Checkpoints: what a folder of safetensors or a GGUF file says of its MoE layers."""
from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy

from . import abi, dlpack
from .arrays import numpy_type
from .enums import GateUpOrder, Io, Orientation, Role, Type
from .errors import NotFoundError
from .tensors import DENSE, Format
from .handle import Handle, using
from .layer_desc import LayerDesc
from .loading import library
from .runtime import Runtime, kept_by


def _override_text(given: str | Mapping[str, Any] | None) -> bytes | None:
    if given is None or isinstance(given, str):
        return None if given is None else given.encode()
    words = {name: "none" if value is None else value for name, value in given.items()}
    numbers = {name: int(value) if isinstance(value, bool) else value for name, value in words.items()}
    return ", ".join(f"{name}={value}" for name, value in numbers.items()).encode()


class CheckpointInfo(NamedTuple):
    family: str
    model_type: str
    n_layers: int
    n_files: int
    n_tensors: int
    file_bytes: int
    is_gguf: bool


class CheckpointTensor:
    """A tensor of a checkpoint where the file is mapped. It can be loaded, dequantised, and read by numpy, torch and other
    users of DLPack without a copy. The checkpoint stays open as long as this or an array made from it lives."""

    def __init__(self, checkpoint: Checkpoint, struct: abi.Tensor, format: Format) -> None:
        self.struct, self.format = struct, format
        self.role, self.expert = Role(struct.role), struct.expert
        self.rows, self.columns, self.n_experts = struct.rows, struct.columns, struct.n_experts
        self._hold = checkpoint.hold()

    def _shape(self) -> tuple[int, ...]:
        """As it lies in memory; other formats than f32, f16 and bf16 are bytes."""
        if self.format.type not in DENSE or self.struct.row_stride or self.struct.expert_stride:
            return (self.struct.data_bytes,)
        matrix = (self.rows, self.columns)
        if self.struct.orientation == Orientation.IN_OUT:
            matrix = (self.columns, self.rows)
        return (self.n_experts, *matrix) if self.n_experts else matrix

    def _type(self) -> Type:
        return Type(self.format.type) if len(self._shape()) > 1 else Type.U8

    def _address(self) -> int:
        if not self.struct.data:
            raise ValueError(f"{self!r} is not in memory: the checkpoint is not mapped, or has one pointer per expert")
        return int(self.struct.data)

    def numpy(self) -> numpy.ndarray:
        """A read-only array over the mapping."""
        memory: Any = (c.c_uint8 * self.struct.data_bytes).from_address(self._address())
        memory.owner = self
        array = numpy.frombuffer(memory, numpy_type(self._type())).reshape(self._shape())
        array.flags.writeable = False
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(self, *, stream: int | None = None, **request: Any) -> Any:
        dlpack.check_stream(self.__dlpack_device__(), stream)
        where = (self._address(), self._shape(), self._type())
        return dlpack.export(*where, self, dlpack.Request(**request), read_only=True)

    def __repr__(self) -> str:
        return f"CheckpointTensor({self.role.name.lower()}, expert {self.expert}, {self.rows} x {self.columns})"


class Checkpoint(Handle):
    """Opened headers of a model. io "mmap" maps the files, "read" reads tensors on request.

    family and overrides say what the files say wrongly or leave out: overrides={"top_k": 4, "gate_limit": None}, or
    "top_k=4, gate_limit=none" as moe_checkpoint_options has it.
    """

    destroy = "moe_checkpoint_destroy"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        io: Io | str | int = Io.MMAP,
        family: str | None = None,
        orientation: Orientation | str | int | None = None,
        gate_up_order: GateUpOrder | str | int = GateUpOrder.NONE,
        overrides: str | Mapping[str, Any] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        options = abi.CheckpointOptions(io=Io.of(io), gate_up_order=GateUpOrder.of(gate_up_order))
        options.family = family.encode() if family is not None else None
        options.overrides = _override_text(overrides)
        if orientation is not None:
            options.has_orientation, options.orientation = 1, Orientation.of(orientation)
        self.path = os.fspath(path)
        out = c.c_void_p()
        with using(runtime) as [means]:
            arguments = (means, os.fsencode(path), c.addressof(options), c.addressof(out))
            library().call("moe_checkpoint_open", *arguments)
        super().__init__(out.value or 0, kept_by(runtime))

    @property
    def info(self) -> CheckpointInfo:
        info = abi.CheckpointInfo()
        with self.use() as checkpoint:
            self._library.call("moe_checkpoint_get_info", checkpoint, c.addressof(info))
        names = (info.family.decode(), info.model_type.decode())
        counts = (info.n_layers, info.n_files, info.n_tensors, info.file_bytes)
        return CheckpointInfo(*names, *counts, bool(info.is_gguf))

    @property
    def layers(self) -> list[int]:
        """The decoder layers (the numbers in the tensor names) that are MoE layers, ascending."""
        return [self.layer_at(index) for index in range(self.info.n_layers)]

    def layer_at(self, index: int) -> int:
        """The index-th of layers; without one, a NotFoundError says what the files have instead."""
        layer = c.c_int32()
        with self.use() as checkpoint:
            self._library.call("moe_checkpoint_layer_at", checkpoint, index, c.addressof(layer))
        return layer.value

    def layer(self, layer: int) -> LayerDesc:
        desc = LayerDesc()
        with self.use() as checkpoint:
            self._library.call("moe_checkpoint_layer", checkpoint, layer, c.addressof(desc))
        return desc

    def formats(self, layer: int) -> dict[Role, Format]:
        """The format of every role that the layer has."""
        found = [Format() for _ in range(abi.ROLE_COUNT)]
        pointers = (c.c_void_p * len(found))(*(c.addressof(one) for one in found))
        with self.use() as checkpoint:
            arguments = (checkpoint, layer, c.addressof(pointers), len(found))
            self._library.call("moe_checkpoint_formats", *arguments)
        return {Role(role): one for role, one in enumerate(found) if one.type != Type.NONE}

    def tensor(self, layer: int, index: int) -> CheckpointTensor:
        """The index-th tensor of a layer; NotFoundError past the end."""
        struct, format = abi.Tensor(), Format()
        with self.use() as checkpoint:
            out = (c.addressof(struct), c.addressof(format))
            self._library.call("moe_checkpoint_tensor", checkpoint, layer, index, *out)
            return CheckpointTensor(self, struct, format)

    def tensors(self, layer: int) -> list[CheckpointTensor]:
        self.layer(layer)  # that there is such a layer
        found: list[CheckpointTensor] = []
        while True:
            try:
                found.append(self.tensor(layer, len(found)))
            except NotFoundError:
                return found
