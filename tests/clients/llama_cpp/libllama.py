"""The C API of a prebuilt llama.cpp by ctypes, on x86-64. Structs that are passed by value are blocks of bytes, with the
offsets of the fields that tests set: those differ from release to release."""
import ctypes
import glob
import os
import re

import numpy as np

# Larger than the structs of any release: a function that takes one by value reads its beginning.
PARAMS_BYTES = 512

# Bytes of ggml_threadpool_params, and where the polling is; its members follow a mask of processors.
_POOL_PARAMS_BYTES, _POLLING_OFFSET = 544, 520

# Offsets in llama_context_params, from the version of ggml on. Everything before n_seq_max stays.
_CONTEXT = {
    (0, 9): {"n_threads": 16, "flash_attn_type": 36, "cb_eval": 72, "type_k": 88, "abort_callback": 96},
    (0, 15): {"n_threads": 24, "flash_attn_type": 48, "cb_eval": 88, "type_k": 104, "abort_callback": 112},
    (0, 19): {"n_threads": 28, "flash_attn_type": 52, "cb_eval": 88, "type_k": 104, "abort_callback": 112},
}
# Behind abort_callback and its data come flags.
_OP_OFFLOAD = 16 + 3
# In llama_model_params: a flag, then a number that is 0 for reading and 1 for mapping.
_USE_MMAP = {(0, 9): (65, ctypes.c_bool), (0, 19): (24, ctypes.c_int32)}
_BUFFERS_BY_NAME, _N_GPU_LAYERS = 8, 16  # in all of them
# --cpu-moe keeps these weights from a GPU.
_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"

_TYPE_F32, _DEVICE_TYPE_GPU = 0, 1
_FLASH_ATTENTION_OFF = 0


class _Params(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * PARAMS_BYTES)]

    def set(self, offset, ctype, value):
        ctype.from_buffer(self, offset).value = value


class _BufferByName(ctypes.Structure):
    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


class _Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_EVAL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
_ABORT = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)


def _of_version(table, version):
    return table[max(key for key in table if key <= version)]


def _only(pattern):
    found = sorted(glob.glob(pattern))
    if not found:
        raise FileNotFoundError(pattern)
    return found[0]


class Llama:
    """The libraries of a folder. GGML_BACKEND_PATH is read here."""

    def __init__(self, folder):
        self.base = ctypes.CDLL(_only(f"{folder}/libggml-base.so*"))
        self.ggml = ctypes.CDLL(_only(f"{folder}/libggml.*so*"))
        self.llama = ctypes.CDLL(_only(f"{folder}/libllama.*so*"))
        self.base.ggml_version.restype = ctypes.c_char_p
        self.version = self.base.ggml_version().decode()
        self.version_numbers = tuple(int(n) for n in re.findall(r"\d+", self.version)[:2])
        self.log = []
        self._log = _LOG(lambda level, text, user: self.log.append(text.decode(errors="replace")))
        self.llama.llama_log_set(self._log, None)
        self.ggml.ggml_backend_load_all_from_path(folder.encode())
        self.llama.llama_backend_init()
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(self.llama, name).restype = _Params
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab"):
            getattr(self.llama, name).restype = ctypes.c_void_p
        self.llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        self.llama.llama_batch_init.restype = _Batch
        self.base.ggml_get_name.restype = ctypes.c_char_p
        self.base.ggml_nelements.restype = ctypes.c_int64

    def devices(self):
        self.ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
        self.ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
        self.base.ggml_backend_dev_name.restype = ctypes.c_char_p
        self.base.ggml_backend_dev_type.restype = ctypes.c_int
        found = {}
        for i in range(self.ggml.ggml_backend_dev_count()):
            device = ctypes.c_void_p(self.ggml.ggml_backend_dev_get(ctypes.c_size_t(i)))
            found[self.base.ggml_backend_dev_name(device).decode()] = self.base.ggml_backend_dev_type(device)
        return found

    def gpu(self):
        """What the first GPU calls itself, or None."""
        self.ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
        self.base.ggml_backend_dev_description.restype = ctypes.c_char_p
        device = ctypes.c_void_p(self.ggml.ggml_backend_dev_by_type(_DEVICE_TYPE_GPU))
        return self.base.ggml_backend_dev_description(device).decode() if device else None


class Model:
    """is_on_gpu: all layers on the GPUs that the libraries can use, but for their experts."""

    def __init__(self, library, path, use_mmap=True, is_on_gpu=False):
        self.library = library
        params = library.llama.llama_model_default_params()
        offset, ctype = _of_version(_USE_MMAP, library.version_numbers)
        params.set(offset, ctype, use_mmap)
        if is_on_gpu:
            library.base.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
            buffers = (_BufferByName * 2)((_EXPERTS, library.base.ggml_backend_cpu_buffer_type()))
            params.set(_BUFFERS_BY_NAME, ctypes.c_void_p, ctypes.addressof(buffers))
            params.set(_N_GPU_LAYERS, ctypes.c_int32, 999)
        self.handle = ctypes.c_void_p(library.llama.llama_model_load_from_file(path.encode(), params))
        if not self.handle:
            raise RuntimeError("".join(library.log[-20:]))
        vocabulary = ctypes.c_void_p(library.llama.llama_model_get_vocab(self.handle))
        self.n_vocabulary = library.llama.llama_vocab_n_tokens(vocabulary)

    def close(self):
        self.library.llama.llama_model_free(self.handle)


class Context:
    """Without flash attention, with keys and values in float32, for sequences that do not see each other."""

    def __init__(self, model, n_sequences=1, n_tokens=256, n_threads=1, is_exact=True, on_value=None, on_abort=None,
                 n_batch=512, op_offload=True):
        self.model, self.library = model, model.library
        params = self.library.llama.llama_context_default_params()
        offsets = _of_version(_CONTEXT, self.library.version_numbers)
        for offset, value in ((0, n_tokens * n_sequences), (4, n_batch), (8, n_batch), (12, n_sequences)):
            params.set(offset, ctypes.c_uint32, value)
        params.set(offsets["n_threads"], ctypes.c_int32, n_threads)
        params.set(offsets["n_threads"] + 4, ctypes.c_int32, n_threads)
        if is_exact:
            params.set(offsets["flash_attn_type"], ctypes.c_int32, _FLASH_ATTENTION_OFF)
            params.set(offsets["type_k"], ctypes.c_int32, _TYPE_F32)
            params.set(offsets["type_k"] + 4, ctypes.c_int32, _TYPE_F32)
        params.set(offsets["abort_callback"] + _OP_OFFLOAD, ctypes.c_bool, op_offload)
        self._callbacks = []
        if on_value:
            self._set_callback(params, offsets["cb_eval"], _EVAL(self._watch(on_value)))
        if on_abort:
            self._set_callback(params, offsets["abort_callback"], _ABORT(lambda user: on_abort()))
        self.handle = ctypes.c_void_p(self.library.llama.llama_init_from_model(model.handle, params))
        if not self.handle:
            raise RuntimeError("".join(self.library.log[-20:]))

    def _set_callback(self, params, offset, callback):
        self._callbacks.append(callback)
        params.set(offset, ctypes.c_void_p, ctypes.cast(callback, ctypes.c_void_p).value)

    # on_value(name, None) says whether a value is wanted, on_value(name, array) gets it.
    def _watch(self, on_value):
        def callback(tensor, is_question, user):
            tensor = ctypes.c_void_p(tensor)
            name = self.library.base.ggml_get_name(tensor).decode()
            if is_question:
                return bool(on_value(name, None))
            values = np.empty(self.library.base.ggml_nelements(tensor), np.float32)
            self.library.base.ggml_backend_tensor_get(tensor, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(0),
                                                      ctypes.c_size_t(values.nbytes))
            on_value(name, values)
            return True
        return callback

    def decode(self, tokens):
        """[(sequence, position, token)] -> status."""
        batch = self.library.llama.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (sequence, position, token) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, 1
        status = self.library.llama.llama_decode(self.handle, batch)
        self.library.llama.llama_batch_free(batch)
        return status

    def logits(self, n):
        """Of the last decode's first n tokens."""
        rows = [np.ctypeslib.as_array(self.library.llama.llama_get_logits_ith(self.handle, i), (self.model.n_vocabulary,))
                for i in range(n)]
        return np.array(rows)

    def attach_pool(self, n_threads, polling):
        """A thread pool as llama.cpp's programs attach it."""
        with open("/proc/self/maps", encoding="utf-8") as maps:
            cpu = ctypes.CDLL(next(line.split()[-1] for line in maps if "libggml-cpu" in line))
        cpu.ggml_threadpool_new.restype = ctypes.c_void_p
        params = (ctypes.c_uint8 * _POOL_PARAMS_BYTES)()
        self.library.base.ggml_threadpool_params_init(params, n_threads)
        ctypes.c_uint32.from_buffer(params, _POLLING_OFFSET).value = polling
        pool = ctypes.c_void_p(cpu.ggml_threadpool_new(params))
        self.library.llama.llama_attach_threadpool(self.handle, pool, pool)
        self._free_pool = lambda: cpu.ggml_threadpool_free(pool)

    def detach_pool(self):
        self.library.llama.llama_detach_threadpool(self.handle)
        self._free_pool()

    def set_n_threads(self, decode, batch):
        self.library.llama.llama_set_n_threads(self.handle, ctypes.c_int32(decode), ctypes.c_int32(batch))

    def n_splits(self):
        text = "".join(self.library.log)
        return int(re.findall(r"splits = (\d+)", text)[-1])

    def close(self):
        self.library.llama.llama_free(self.handle)
