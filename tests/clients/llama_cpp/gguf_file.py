"""Writes GGUF files of version 3: keys and values, then tensors whose bytes are given."""
import struct

import numpy as np

ALIGNMENT = 32
# Numbers of the value types of keys.
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def _text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _kind(value):
    return BOOL if isinstance(value, bool) else U32 if isinstance(value, int) else F32 if isinstance(value, float) else STRING


def _plain(kind, value):
    return _text(value) if kind == STRING else struct.pack({BOOL: "<?", U32: "<I", I32: "<i", F32: "<f"}[kind], value)


def _value(value):
    if isinstance(value, list):
        kind = I32 if _kind(value[0]) == U32 else _kind(value[0])
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(_plain(kind, one) for one in value)
    return struct.pack("<I", _kind(value)) + _plain(_kind(value), value)


def write(path, keys, tensors):
    """tensors: {name: (ggml's type number, shape with the columns first, bytes)}."""
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys))
    for key, value in keys.items():
        head += _text(key) + _value(value)
    offset = 0
    for name, (kind, shape, data) in tensors.items():
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, offset)
        offset += -(-len(data) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, _, data in tensors.values():
            file.write(data + bytes(-len(data) % ALIGNMENT))


def float_tensor(values):
    """Of an array in numpy's order, rows first."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    return 0, values.shape[::-1], values.tobytes()
