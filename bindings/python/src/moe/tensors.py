"""Weight formats, tensors given by hand, and the host tools that quantise and read them back."""
from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from . import abi
from .arrays import ELEMENT_BYTES, Array, View, check_dense, check_type, view
from .enums import DeviceKind, GateUpOrder, Orientation, Packing, Role, ScaleLayout, Space, Type, ZeroPoint
from .loading import library

ALL_EXPERTS = abi.ALL_EXPERTS
DENSE = {Type.F32: "f32", Type.F16: "f16", Type.BF16: "bf16"}
BYTES = (Type.U8, Type.I8)
IN_BYTES = (Type.E2M1, Type.INT, Type.CODEBOOK, Type.GGUF, Type.F8_E4M4)  # no arrays but E2M1 in pairs
IN_WORDS = (Packing.BIT_PLANES, Packing.BIT_STREAM, Packing.GPTQ, Packing.AWQ)  # of 32 bits
ONE_BYTE = [kind for kind, n_bytes in ELEMENT_BYTES.items() if n_bytes == 1 and kind != Type.E2M1]
NESTED_VALUES = 256


class FormatInfo(NamedTuple):
    name: str
    block_rows: int
    block_columns: int
    has_decode: bool
    has_encode: bool
    bits_per_weight: float


class FormatSize(NamedTuple):
    data_bytes: int
    scale_bytes: int


class Format(abi.Format):
    """How the bytes of a matrix are to be read. Format.named("nvfp4"), from a checkpoint, or by hand."""

    @classmethod
    def c_name(cls) -> str:
        return "moe_format"

    @classmethod
    def named(cls, name: str) -> Format:
        found = cls()
        library().call("moe_format_by_name", name.encode(), c.addressof(found))
        return found

    @classmethod
    def of(cls, value: Format | str) -> Format:
        return cls.named(value) if isinstance(value, str) else value

    @property
    def info(self) -> FormatInfo:
        info = abi.FormatInfo()
        library().call("moe_format_get_info", c.addressof(self), c.addressof(info))
        facts = (info.block_rows, info.block_columns, bool(info.has_decode), bool(info.has_encode))
        return FormatInfo(info.name.decode(), *facts, info.bits_per_weight)

    def size(self, rows: int, columns: int) -> FormatSize:
        """Bytes of the codes and of the scales of one dense matrix."""
        data, scales = c.c_uint64(), c.c_uint64()
        out = (c.addressof(data), c.addressof(scales))
        library().call("moe_format_size", c.addressof(self), rows, columns, *out)
        return FormatSize(data.value, scales.value)


def formats() -> list[str]:
    """The names that Format.named knows."""
    return _listed("moe_format_name_at")


def families() -> list[str]:
    """The model families whose checkpoints can be read."""
    return _listed("moe_checkpoint_family_at")


def _listed(function: str) -> list[str]:
    names: list[str] = []
    while (name := library().text(function, len(names))) is not None:
        names.append(name)
    return names


def _stored_as(kind: Type) -> Sequence[Type]:
    """What an array of such elements may be: the type itself, or bytes. Empty for an unknown type, which the library refuses."""
    if kind in IN_BYTES:
        return BYTES
    if kind not in ELEMENT_BYTES:
        return ()
    return tuple(dict.fromkeys((kind, *BYTES) if ELEMENT_BYTES[kind] == 1 else (kind, Type.U8)))


def _code_types(format: abi.Format) -> Sequence[Type]:
    if format.type == Type.E2M1 and format.packing == Packing.NIBBLE_LOW_FIRST:
        return (Type.E2M1, *BYTES)
    return _stored_as(Type.I32 if format.packing in IN_WORDS else Type(format.type))


def _zero_point_types(format: abi.Format) -> Sequence[Type]:
    if format.zero_point == ZeroPoint.FLOAT:
        return _stored_as(Type(format.scale_type))
    is_packed = format.zero_point in (ZeroPoint.PACKED, ZeroPoint.PACKED_MINUS_ONE)
    return _code_types(format) if is_packed else ()


class Tensor:
    """One tensor of a layer, of one expert or of all stacked, in the caller's memory (not copied).

    data: an array, or one per expert. For f32, f16 and bf16 the format and the shape follow from it: [rows, columns],
    [experts, rows, columns], or a vector. Other formats need format, rows and columns, and data as bytes, or as elements
    of the format's own type; what else lies beside the data, likewise.
    rows and columns are logical, [out, in], for either orientation.
    expert: its global id, or ALL_EXPERTS; by default a stack where the data or n_experts make it one, else expert 0.
    """

    def __init__(
        self,
        role: Role | str | int,
        data: Array | Sequence[Array],
        *,
        format: Format | str | None = None,
        expert: int | None = None,
        rows: int | None = None,
        columns: int | None = None,
        n_experts: int | None = None,
        orientation: Orientation | str | int = Orientation.OUT_IN,
        gate_up_order: GateUpOrder | str | int = GateUpOrder.NONE,
        scales: Array | Sequence[Array] | None = None,
        global_scale: Array | None = None,
        codebook: Array | None = None,
        zero_points: Array | None = None,
        permutation: Array | None = None,
        nested_scales: Array | None = None,
        nested_codebook: Array | None = None,
        nested_offset: float = 0.0,
        input_scale: Array | None = None,
        pre_quant_scale: Array | None = None,
        scale_layout: ScaleLayout | str | int = ScaleLayout.LINEAR,
    ) -> None:
        self._keep: list[Any] = []
        self.struct = abi.Tensor(role=Role.of(role), nested_offset=nested_offset)
        self.struct.orientation = Orientation.of(orientation)
        self.struct.gate_up_order = GateUpOrder.of(gate_up_order)
        self.struct.scale_layout = ScaleLayout.of(scale_layout)
        first = self._set_data(data)
        self._set_format(format, first)
        self._set_shape(first, rows, columns, n_experts)
        self._set_expert(expert, first)
        self._set_scales(scales)
        self._set_floats("global_scale", "n_global_scales", global_scale)
        self._set_floats("input_scale", "n_input_scales", input_scale)
        self._set_buffer("zero_points", "zero_point_bytes", zero_points, _zero_point_types(self.format))
        self._set_buffer("pre_quant_scale", "pre_quant_scale_bytes", pre_quant_scale, [Type.F32])
        self._set_buffer("codebook", "codebook_bytes", codebook, [Type.F32])
        self._set_buffer("permutation", "permutation_bytes", permutation, [Type.I32])
        self._set_buffer("nested_scales", "nested_scale_bytes", nested_scales, [Type.F32])
        nested = self._set_buffer("nested_codebook", None, nested_codebook, [Type.F32])
        if nested is not None and nested.size != NESTED_VALUES:  # moe_tensor does not say how many there are
            raise ValueError(f"nested_codebook: has {nested.size} values, must have {NESTED_VALUES}")

    def _view(self, name: str, given: Array) -> View:
        found = view(name, given)
        check_dense(found)
        self._keep.append(found.owner)
        return found

    def _per_expert(self, name: str, given: Sequence[Array]) -> tuple[list[View], Any]:
        views = [self._view(f"{name}[{index}]", one) for index, one in enumerate(given)]
        if not views or len({(one.shape, one.type, one.device) for one in views}) != 1:
            raise ValueError(f"{name}: the arrays of the experts must be of one shape, type and device")
        pointers = (c.c_void_p * len(views))(*(one.address for one in views))
        self._keep.append(pointers)
        return views, pointers

    def _set_data(self, data: Array | Sequence[Array]) -> View:
        if isinstance(data, (list, tuple)):
            views, pointers = self._per_expert("data", data)
            first = views[0]
            self.struct.data_per_expert = c.addressof(pointers)
            self.struct.n_experts = len(views)
        else:
            first = self._view("data", data)
            self.struct.data = first.address
        self.struct.data_bytes = first.n_bytes
        self.struct.space = Space.HOST if first.device == DeviceKind.CPU else Space.DEVICE
        return first

    def _set_format(self, format: Format | str | None, first: View) -> None:
        if format is None and first.type not in DENSE:
            raise ValueError(f"format: must be given for data of {first.type.name.lower()}")
        self.format = Format.of(format if format is not None else DENSE[first.type])
        _check_stored(first, _code_types(self.format))
        self.struct.format = c.addressof(self.format)

    def _set_shape(self, first: View, rows: int | None, columns: int | None, n_experts: int | None) -> None:
        if rows is None or columns is None:
            if first.type not in DENSE or not 1 <= len(first.shape) <= (2 if self.struct.n_experts else 3):
                raise ValueError(f"rows and columns: must be given for {self.format.info.name} of shape {first.shape}")
            shape = (1, 1, *first.shape)[-3:]
            in_out = self.struct.orientation == Orientation.IN_OUT
            rows, columns = (shape[2], shape[1]) if in_out else (shape[1], shape[2])
            if len(first.shape) == 3:
                self.struct.n_experts = shape[0]
        if n_experts is not None:
            if self.struct.data_per_expert and n_experts != self.struct.n_experts:
                raise ValueError(f"n_experts: is {n_experts}, data has {self.struct.n_experts} arrays")
            self.struct.n_experts = n_experts
        self.struct.rows, self.struct.columns = rows, columns

    def _set_expert(self, expert: int | None, first: View) -> None:
        if expert is None:
            is_one = not self.struct.n_experts and len(first.shape) <= 2
            expert = 0 if is_one else ALL_EXPERTS
        self.struct.expert = expert

    def _set_scales(self, scales: Array | Sequence[Array] | None) -> None:
        if scales is None:
            return
        types = _stored_as(Type(self.format.scale_type))
        if isinstance(scales, (list, tuple)):
            views, pointers = self._per_expert("scales", scales)
            _check_stored(views[0], types)
            if len(views) != (self.struct.n_experts or 1):
                raise ValueError(f"scales: has {len(views)} arrays, must have {self.struct.n_experts or 1}")
            self.struct.scales_per_expert = c.addressof(pointers)
            self.struct.scale_bytes = views[0].n_bytes
        else:
            self._set_buffer("scales", "scale_bytes", scales, types)

    def _set_floats(self, field: str, count: str, given: Array | None) -> None:
        if given is not None:
            found = self._set_buffer(field, None, given, [Type.F32])
            setattr(self.struct, count, found.size)

    def _set_buffer(self, field: str, count: str | None, given: Array | None, types: Sequence[Type]) -> Any:
        if given is None:
            return None
        found = self._view(field, given)
        _check_stored(found, types)
        setattr(self.struct, field, found.address)
        if count is not None:
            setattr(self.struct, count, found.n_bytes)
        return found

    def __repr__(self) -> str:
        return f"Tensor({Role(self.struct.role).name.lower()}, {self.struct.rows} x {self.struct.columns})"


def _check_stored(found: View, types: Sequence[Type]) -> None:
    if types:
        check_type(found, types)


class Quantized(NamedTuple):
    """A matrix in a format: what Tensor takes."""

    format: Format
    rows: int
    columns: int
    data: numpy.ndarray
    scales: numpy.ndarray | None
    global_scale: numpy.ndarray | None
    codebook: numpy.ndarray | None

    def tensor(self, role: Role | str | int, expert: int | None = None) -> Tensor:
        return Tensor(
            role,
            self.data,
            format=self.format,
            expert=expert,
            rows=self.rows,
            columns=self.columns,
            scales=self.scales,
            global_scale=self.global_scale,
            codebook=self.codebook,
        )


def quantize(matrix: Array, format: Format | str, codebook: Array | None = None) -> Quantized:
    """A float32 matrix [rows, columns] in host memory, in a format that has_encode."""
    source = view("matrix", matrix)
    check_type(source, [Type.F32])
    check_dense(source)
    if len(source.shape) != 2 or source.device != DeviceKind.CPU:
        raise ValueError(f"matrix: must be [rows, columns] in host memory, has shape {source.shape}")
    format, (rows, columns) = Format.of(format), source.shape
    size = format.size(rows, columns)
    data = numpy.empty(size.data_bytes, numpy.uint8)
    scales = numpy.empty(size.scale_bytes, numpy.uint8) if size.scale_bytes else None
    global_scale = numpy.zeros(1, numpy.float32) if format.global_scale else None
    values = view("codebook", codebook) if codebook is not None else None
    if values is not None:
        check_type(values, [Type.F32])
        check_dense(values)
        if values.size != 1 << format.bits:
            raise ValueError(f"codebook: has {values.size} values, must have {1 << format.bits}")
    args = abi.QuantizeArgs(format=c.addressof(format), source=source.address, rows=rows, columns=columns)
    args.data, args.data_bytes = data.ctypes.data, data.nbytes
    if scales is not None:
        args.scales, args.scale_bytes = scales.ctypes.data, scales.nbytes
    args.global_scale = global_scale.ctypes.data if global_scale is not None else None
    args.codebook = values.address if values is not None else None
    library().call("moe_quantize", c.addressof(args))
    return Quantized(format, rows, columns, data, scales, global_scale, codebook)


def dequantize(tensor: Tensor, expert: int = 0) -> numpy.ndarray:
    """One expert of a tensor (0 for a single matrix) as float32 [rows, columns], as it lies."""
    out = numpy.empty((tensor.struct.rows, tensor.struct.columns), numpy.float32)
    library().call("moe_dequantize", c.addressof(tensor.struct), expert, out.ctypes.data, out.size)
    return out


def scale_layout_size(layout: ScaleLayout | str | int, rows: int, columns: int) -> int:
    """Bytes of the scales of one matrix in a layout; columns counts groups of columns."""
    size = c.c_uint64()
    library().call("moe_scale_layout_size", ScaleLayout.of(layout), rows, columns, c.addressof(size))
    return size.value


def convert_scales(
    scales: Array,
    rows: int,
    columns: int,
    layout: ScaleLayout | str | int,
    source_layout: ScaleLayout | str | int = ScaleLayout.LINEAR,
) -> numpy.ndarray:
    """Scales of one byte of one matrix, [rows, columns], in another layout, as bytes. columns counts groups of columns."""
    source = view("scales", scales)
    check_type(source, ONE_BYTE)
    check_dense(source)
    if source.device != DeviceKind.CPU:
        raise ValueError("scales: must be in host memory")
    out = numpy.empty(scale_layout_size(layout, rows, columns), numpy.uint8)
    args = abi.ConvertScalesArgs(rows=rows, columns=columns)
    args.source_layout, args.layout = ScaleLayout.of(source_layout), ScaleLayout.of(layout)
    args.source, args.source_bytes = source.address, source.n_bytes
    args.scales, args.scale_bytes = out.ctypes.data, out.nbytes
    library().call("moe_convert_scales", c.addressof(args))
    return out
