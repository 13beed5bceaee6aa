"""Values in ggml's types, by the functions of a libggml-base."""
import ctypes

import numpy as np

import models


class Quantizer:
    def __init__(self, base):
        self.base = base
        base.ggml_row_size.restype = ctypes.c_size_t
        base.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
        base.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def __call__(self, kind, values):
        """The bytes, and the values that they stand for."""
        if kind == "f32":
            return values.tobytes(), values
        rows, columns = values.size // values.shape[-1], values.shape[-1]
        number = models.TYPES[kind]
        data = np.zeros(rows * self.base.ggml_row_size(number, columns), np.uint8)
        rounded = np.empty(values.size, np.float32)
        source, target, back = (a.ctypes.data_as(ctypes.c_void_p) for a in (np.ascontiguousarray(values), data, rounded))
        if kind in ("f16", "bf16"):
            short = {"f16": "fp16", "bf16": "bf16"}[kind]
            getattr(self.base, f"ggml_fp32_to_{short}_row")(source, target, ctypes.c_int64(values.size))
            getattr(self.base, f"ggml_{short}_to_fp32_row")(target, back, ctypes.c_int64(values.size))
        else:
            self.base.ggml_quantize_chunk(number, source, target, 0, rows, columns, None)
            getattr(self.base, f"dequantize_row_{kind}")(target, back, ctypes.c_int64(values.size))
        return data.tobytes(), rounded.reshape(values.shape)
