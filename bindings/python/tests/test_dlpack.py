"""DLPack in both directions: what is read of a capsule, what is asked of a producer, and what a consumer gets."""
import ctypes as c
import os
import subprocess
import sys

import numpy
import pytest
from conftest import CASES
from oracle import Golden, relative_l2

import moe
from moe.arrays import view
from moe.dlpack import VERSION

GOLDEN = Golden(CASES["FWD-02"]["fixture"])
CPU, CUDA, CUDA_HOST, ROCM, CUDA_MANAGED = 1, 2, 3, 10, 13
READ_ONLY, IS_COPIED, IS_PADDED = 1, 2, 4

# (code, bits, lanes) as dlpack.h of DLPack 1.3 numbers them
CODES = {
    (0, 8, 1): moe.Type.I8,
    (0, 32, 1): moe.Type.I32,
    (0, 64, 1): moe.Type.I64,
    (1, 8, 1): moe.Type.U8,
    (2, 16, 1): moe.Type.F16,
    (2, 32, 1): moe.Type.F32,
    (2, 64, 1): moe.Type.F64,
    (4, 16, 1): moe.Type.BF16,
    (10, 8, 1): moe.Type.F8_E4M3,  # kDLFloat8_e4m3fn
    (12, 8, 1): moe.Type.F8_E5M2,
    (14, 8, 1): moe.Type.F8_E8M0,
    (17, 4, 2): moe.Type.E2M1,  # kDLFloat4_e2m1fn
}
# Of kinds that are near these, but others: e4m3 with infinities, e4m3fnuz, e5m2fnuz, bool, int16, float32 in pairs.
OTHERS = [(8, 8, 1), (11, 8, 1), (13, 8, 1), (6, 8, 1), (0, 16, 1), (2, 32, 2), (17, 4, 4), (17, 8, 1)]


@pytest.fixture(scope="module")
def handles():
    return GOLDEN.open()[1:]


class Managed(c.Structure):
    """DLManagedTensorVersioned, field by field."""

    _fields_ = [
        *[("major", c.c_uint32), ("minor", c.c_uint32), ("manager", c.c_void_p), ("deleter", c.c_void_p)],
        *[("flags", c.c_uint64), ("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32)],
        *[("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)],
        *[("shape", c.c_void_p), ("strides", c.c_void_p), ("byte_offset", c.c_uint64)],
    ]


def python_function(name, result, *arguments):
    return c.PYFUNCTYPE(result, *arguments)((name, c.pythonapi))


new_capsule = python_function("PyCapsule_New", c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)
is_valid = python_function("PyCapsule_IsValid", c.c_int, c.py_object, c.c_char_p)
get_pointer = python_function("PyCapsule_GetPointer", c.c_void_p, c.py_object, c.c_char_p)
NAME = b"dltensor_versioned"


class Producer:
    """Makes a capsule by hand, counts how often its deleter is called, and notes what was asked."""

    def __init__(self, array, code, *, shape=None, strides=None, device=(CPU, 0), flags=0, byte_offset=0, major=1):
        self.array, self.device, self.deleted, self.asked = array, device, 0, None
        shape = array.shape if shape is None else shape
        self.shape = (c.c_int64 * len(shape))(*shape)
        self.strides = strides and (c.c_int64 * len(strides))(*strides)
        self.deleter = c.CFUNCTYPE(None, c.c_void_p)(self._count)
        numbers = dict(major=major, minor=3, flags=flags, byte_offset=byte_offset, ndim=len(shape))
        self.managed = Managed(data=array.ctypes.data - byte_offset, **numbers)
        self.managed.device_type, self.managed.device_id = device
        self.managed.code, self.managed.bits, self.managed.lanes = code
        self.managed.shape = c.addressof(self.shape)
        self.managed.strides = c.addressof(self.strides) if strides else None
        self.managed.deleter = c.cast(self.deleter, c.c_void_p)

    def _count(self, _address):
        self.deleted += 1

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **asked):
        self.asked = asked
        return new_capsule(c.addressof(self.managed), NAME, None)


BYTES = numpy.arange(48, dtype=numpy.uint8)


@pytest.mark.parametrize("code", CODES)
def test_types_in(code):
    found = view("x", Producer(BYTES, code, shape=(2, 3)))
    assert (found.type, found.shape, found.strides) == (CODES[code], (2, 3), (3, 1))
    assert found.address == BYTES.ctypes.data and found.writable


@pytest.mark.parametrize("code", OTHERS)
def test_other_types_are_refused_by_number(code):
    producer = Producer(BYTES, code, shape=(2, 3))
    with pytest.raises(TypeError, match=f"x: no type for DLPack code {code[0]}, {code[1]} bits, {code[2]} lanes"):
        view("x", producer)
    assert producer.deleted == 1


def test_where_the_elements_lie():
    producer = Producer(BYTES, (2, 32, 1), shape=(2, 2), strides=(5, 1), byte_offset=16)
    found = view("x", producer)
    assert (found.address, found.shape, found.strides) == (BYTES.ctypes.data, (2, 2), (5, 1))
    assert not producer.deleted
    del found
    assert producer.deleted == 1


def test_codes_of_four_bits():
    """One by one they are counted in pairs, which is what a byte holds; those of a byte each are refused."""
    one = (17, 4, 1)
    found = view("x", Producer(BYTES, one, shape=(2, 6), strides=(8, 1)))
    assert (found.type, found.shape, found.strides) == (moe.Type.E2M1, (2, 3), (4, 1))
    assert view("x", Producer(BYTES, one, shape=(2, 6))).n_bytes == 6
    for shape, strides in (((2, 5), (6, 1)), ((2, 6), (7, 1)), ((2, 6), (12, 2)), ((), ())):
        with pytest.raises(TypeError, match="x: codes of 4 bits, shape .* do not lie in pairs"):
            view("x", Producer(BYTES, one, shape=shape, strides=strides))
    with pytest.raises(TypeError, match="x: codes of 4 bits have a byte each"):
        view("x", Producer(BYTES, one, shape=(2, 6), flags=IS_PADDED))
    bits = numpy.array([0x21, 0x43], numpy.uint8)  # the first of a pair is in the low bits: 0.5 1 1.5 2
    data, scales = Producer(numpy.tile(bits, 8), one, shape=(1, 32)), numpy.array([128], numpy.uint8)  # of 2
    tensor = moe.Tensor("gate", data, format="mxfp4", rows=1, columns=32, scales=scales)
    assert numpy.array_equal(moe.dequantize(tensor)[0], numpy.tile([1, 2, 3, 4], 8))
    for format, stored in (("kbit4", "int32 or uint8"), ("q8_0", "uint8 or int8"), ("fp8_128x128", "float8_e4m3fn or uint8")):
        with pytest.raises(TypeError, match=f"data: is float4_e2m1fn_x2, must be {stored}"):
            moe.Tensor("gate", Producer(BYTES, one, shape=(2, 6)), format=format, rows=1, columns=32)


def test_outputs_that_nobody_would_see(handles):
    x = GOLDEN.x.copy()
    f32 = (2, 32, 1)
    assert relative_l2(moe.forward(*handles, Producer(x, f32, flags=READ_ONLY | IS_COPIED)), GOLDEN.y) <= 1e-5
    with pytest.raises(ValueError, match="out: is read-only"):
        moe.forward(*handles, x, Producer(numpy.empty_like(x), f32, flags=READ_ONLY))
    with pytest.raises(ValueError, match="out: its __dlpack__ made a copy"):
        moe.forward(*handles, x, Producer(numpy.empty_like(x), f32, flags=IS_COPIED))


def test_another_major_version_is_not_read():
    producer = Producer(BYTES, (1, 8, 1), major=2)
    with pytest.raises(BufferError, match="x: DLPack 2.3 is not known here"):
        view("x", producer)
    assert not producer.deleted  # the capsule was not taken: its own destructor does that


@pytest.mark.parametrize(
    "device, kind", [((CPU, 0), "CPU"), ((CUDA_HOST, 0), "CPU"), ((CUDA, 3), "CUDA"), ((CUDA_MANAGED, 0), "CUDA")]
)
def test_devices_and_streams(device, kind):
    """A stream is named to producers on a GPU alone: 1, the default stream, or the caller's."""
    producer = Producer(BYTES, (1, 8, 1), device=device)
    found = view("x", producer, None)
    assert (found.device, found.device_index) == (moe.DeviceKind[kind], device[1])
    assert producer.asked == {"max_version": (1, 3), **({"stream": 1} if kind == "CUDA" else {})}
    for given, told in ((0, 1), (2, 2), (0x7F00, 0x7F00)):
        view("x", producer, given)
        assert producer.asked.get("stream") == (told if kind == "CUDA" else None)


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="x: is on DLPack device 10, not the CPU or CUDA"):
        view("x", Producer(BYTES, (1, 8, 1), device=(ROCM, 0)))


class OnlyDlpack:
    """An array of which nothing is known but DLPack, of a producer that knows version 1 or only the one before."""

    def __init__(self, array, takes_version):
        self.array, self.takes_version = array, takes_version

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if arguments and not self.takes_version:
            raise TypeError("unexpected keyword argument max_version")
        try:
            return self.array.__dlpack__(**arguments)
        except TypeError:  # numpy before 2.1
            return self.array.__dlpack__()


@pytest.mark.parametrize("takes_version", [True, False])
def test_dlpack_in(handles, takes_version):
    out = numpy.full_like(GOLDEN.y, numpy.nan)
    x = GOLDEN.x.copy()
    found = moe.forward(*handles, OnlyDlpack(x, takes_version), OnlyDlpack(out, takes_version))
    assert found.array is out and relative_l2(out, GOLDEN.y) <= 1e-5
    made = moe.forward(*handles, OnlyDlpack(x, takes_version))
    assert isinstance(made, numpy.ndarray) and numpy.array_equal(made, out)


def test_dlpack_gives_the_memory_back():
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3).T
    before = sys.getrefcount(array)
    found = view("x", OnlyDlpack(array, True))
    assert (found.address, found.shape, found.strides) == (array.ctypes.data, (3, 2), (1, 3))
    del found
    assert sys.getrefcount(array) == before


def test_dlpack_out():
    """A tensor of a checkpoint, exported and read again: the same memory, and not writable."""
    checkpoint = GOLDEN.open()[0]
    tensor = next(one for one in checkpoint.tensors(GOLDEN.layer) if one.role == moe.Role.DOWN)
    again = view("tensor", tensor)
    assert again.address == tensor.struct.data and not again.writable
    assert (again.shape, again.type) == ((tensor.rows, tensor.columns), moe.Type.BF16)
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    checkpoint.close()
    array = tensor.numpy()
    del tensor, again
    assert array.any() and not array.flags.writeable  # the mapping lives as long as the array


def exported(capsule):
    """What a consumer reads of a versioned capsule, which is not taken from it."""
    assert is_valid(capsule, NAME)
    return Managed.from_address(get_pointer(capsule, NAME))


@pytest.mark.parametrize("code", CODES)
def test_types_out(code):
    array = moe.DeviceArray((2, 3), CODES[code], device="cpu")
    capsule = array.__dlpack__(max_version=(1, 0))
    found = exported(capsule)
    assert (found.code, found.bits, found.lanes) == code
    assert (found.major, found.minor) == VERSION and found.flags == 0
    assert (found.device_type, found.device_id) == (CPU, 0) == array.__dlpack_device__()
    assert list((c.c_int64 * 2).from_address(found.shape)) == [2, 3]
    assert list((c.c_int64 * 2).from_address(found.strides)) == [3, 1]
    assert found.data + found.byte_offset == array.address
    again = view("x", Relay(array))
    assert (again.address, again.type, again.shape) == (array.address, array.type, array.shape)


class Relay:
    """Nothing but the DLPack of an array."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_numpy_reads_and_writes_memory_of_the_library():
    array = moe.DeviceArray.of(GOLDEN.x, device="cpu")
    there = numpy.from_dlpack(array)
    assert there.ctypes.data == array.address and numpy.array_equal(there, GOLDEN.x)
    array.zero()
    assert not there.any()
    if there.flags.writeable:  # numpy before 2.2 takes the older capsules, and those as read-only
        there[...] = 7
        assert (array.numpy() == 7).all()
    del array
    there.sum()  # what was exported keeps the memory


def test_what_is_exported_when_python_ends():
    """Consumers outlive modules then: numpy's attribute goes after the package."""
    program = """
import numpy, sys, moe
numpy.kept = numpy.from_dlpack(moe.DeviceArray((4,), "f32", device="cpu"))
sys.kept = moe.Checkpoint(sys.argv[1]).tensors(int(sys.argv[2]))[0].__dlpack__(max_version=(1, 3))
"""
    arguments = [sys.executable, "-c", program, str(GOLDEN.path), str(GOLDEN.layer)]
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(moe.__file__)), *sys.path])
    done = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_copies():
    array = moe.DeviceArray.of(GOLDEN.x, device="cpu")
    capsule = array.__dlpack__(max_version=(1, 3), copy=True)
    found = exported(capsule)
    assert found.data != array.address and found.flags == IS_COPIED
    assert c.string_at(found.data, GOLDEN.x.nbytes) == GOLDEN.x.tobytes()
    checkpoint = GOLDEN.open()[0]
    tensor = checkpoint.tensors(GOLDEN.layer)[0]
    assert exported(tensor.__dlpack__(max_version=(1, 3))).flags == READ_ONLY
    assert exported(tensor.__dlpack__(max_version=(1, 3), copy=False)).data == tensor.struct.data
    assert exported(tensor.__dlpack__(max_version=(1, 3), copy=True)).flags == IS_COPIED
    tensor.__dlpack__(copy=True)  # a copy may be written, so an older consumer gets it


def test_requests_that_cannot_be_met():
    array = moe.DeviceArray((2,), "f32", device="cpu")
    array.__dlpack__(max_version=(1, 0), dl_device=(CPU, 0), copy=False)
    with pytest.raises(BufferError, match=r"dl_device: is \(2, 0\), the memory is on \(1, 0\)"):
        array.__dlpack__(dl_device=(CUDA, 0))
    with pytest.raises(BufferError, match="stream: is 1, must be None for host memory"):
        array.__dlpack__(stream=1)
    with pytest.raises(TypeError, match="colour"):
        array.__dlpack__(colour="red")


def test_nothing_has_no_address():
    assert exported(moe.DeviceArray((0, 4), "f32", device="cpu").__dlpack__(max_version=(1, 3))).data is None


@pytest.fixture
def on_gpu(monkeypatch):
    """A DeviceArray as on a GPU, with a library that notes its calls: what DLPack says needs none."""
    calls = []

    class Noting:
        def call(self, *arguments):
            calls.append(arguments)

    monkeypatch.setattr("moe.device.library", Noting)
    made = moe.DeviceArray((4,), "f32", device="cuda", index=1)
    made._address = 4096
    calls.clear()
    return made, calls


@pytest.mark.parametrize(
    "wrote, consumer, waits_for",
    [
        (None, None, []),  # the default stream both times
        (None, 1, []),
        (0x7F00, 0x7F00, []),
        (0x7F00, None, [0x7F00]),
        (0x7F00, 0x8000, [0x7F00]),
        (None, 0x8000, [None]),
        (0x7F00, -1, []),  # the consumer orders the work by itself
    ],
)
def test_streams_of_a_consumer(on_gpu, wrote, consumer, waits_for):
    array, calls = on_gpu
    array.written_on(wrote)
    found = exported(array.__dlpack__(max_version=(1, 3), stream=consumer))
    assert (found.device_type, found.device_id) == (CUDA, 1) == array.__dlpack_device__()
    assert [one[:4] for one in calls] == [("moe_stream_synchronize", moe.DeviceKind.CUDA, 1, one) for one in waits_for]


def test_streams_that_mean_nothing(on_gpu):
    for stream in (0, -2):
        with pytest.raises(BufferError, match=f"stream: is {stream}, must be -1, 1"):
            on_gpu[0].__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="copy: memory of a device"):
        on_gpu[0].__dlpack__(copy=True)


def test_pinned_memory(on_gpu):
    pinned = moe.DeviceArray((4,), "f32", device="cuda", index=1, space="pinned")
    assert pinned.__dlpack_device__() == (CUDA_HOST, 0)


def test_calls_say_on_which_stream_they_wrote(handles):
    out = moe.DeviceArray(GOLDEN.y.shape, "f32", device="cpu")
    stream = moe.Stream("cpu")
    moe.forward(*handles, moe.DeviceArray.of(GOLDEN.x, device="cpu"), out, stream=stream)
    assert out._stream is stream and relative_l2(numpy.from_dlpack(out), GOLDEN.y) <= 1e-5
