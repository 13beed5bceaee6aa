"""torch tensors, without copies, and the operator. Skipped where torch is not installed; the GPU tests where there is none."""
import numpy
import pytest
from conftest import CASES
from oracle import Golden, relative_l2

import moe

torch = pytest.importorskip("torch", reason="torch is not installed")

GOLDEN = Golden(CASES["FWD-02"]["fixture"])
LIMITS = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-2}


def has_gpu():
    return torch.cuda.is_available() and "cuda" in moe.build_info()["backends"]


needs_gpu = pytest.mark.skipif(not has_gpu(), reason="no GPU, or this libmoe is built without CUDA")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.fixture
def layer_of():
    made = []

    def make(device, dtype=torch.float32):
        options = dict(device=device, x_type=dtype, intermediate_type="f32" if dtype == torch.float32 else "none")
        made.append(moe.Layer(GOLDEN.path, GOLDEN.layer, max_tokens=64, **options))
        return made[-1]

    yield make
    for layer in made:
        layer.close()


def x_on(device, dtype=torch.float32):
    return torch.from_numpy(GOLDEN.x).to(dtype).to(device)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("device", DEVICES)
def test_tensors_in_and_out(layer_of, device, dtype):
    layer, x = layer_of(device, getattr(torch, dtype)), x_on(device, getattr(torch, dtype))
    out = layer(x)
    assert out.dtype == x.dtype and out.device == x.device
    assert relative_l2(out.float().cpu(), GOLDEN.y) <= LIMITS[dtype]
    given = torch.empty_like(x)
    assert layer(x, given) is given and torch.equal(given, out)
    wide = torch.full((len(x) * 2, x.shape[1] + 8), float("nan"), dtype=x.dtype, device=device)
    wide[::2, :-8] = x
    assert torch.equal(layer(wide[::2, :-8]), out)
    assert torch.equal(layer(x[None])[0], out)


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_of_the_routing(layer_of, device):
    layer, x = layer_of(device), x_on(device)
    ids = torch.full(GOLDEN.ids.shape, -7, dtype=torch.int32, device=device)
    weights = torch.full(GOLDEN.weights.shape, float("nan"), device=device)
    layer(x, out_ids=ids, out_weights=weights)
    assert numpy.array_equal(ids.cpu(), GOLDEN.ids)
    assert relative_l2(layer(x, ids=ids.long(), expert_weights=weights).cpu(), GOLDEN.y) <= 1e-5


def test_refusals(layer_of):
    layer = layer_of("cpu")
    with pytest.raises(TypeError, match="x: is bfloat16, must be float32"):
        layer(x_on("cpu", torch.bfloat16))
    with pytest.raises(ValueError, match="x: is on device meta"):
        layer(x_on("meta"))
    with pytest.raises(ValueError, match="columns are not contiguous"):
        layer(x_on("cpu").t().contiguous().t())


@needs_gpu
def test_memory_of_another_device_is_refused(layer_of):
    with pytest.raises(ValueError, match="x: is memory of cpu 0, the plan is for cuda 0"):
        layer_of("cuda")(x_on("cpu"))
    with pytest.raises(ValueError, match="x: is memory of cuda 0, the plan is for cpu 0"):
        layer_of("cpu")(x_on("cuda"))


class OnlyDlpack:
    def __init__(self, tensor):
        self.tensor = tensor
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.parametrize("device", DEVICES)
def test_dlpack(layer_of, device):
    layer, x = layer_of(device, torch.bfloat16), x_on(device, torch.bfloat16)
    out = torch.zeros_like(x)
    moe.forward(layer.plan, layer.weights, moe.Workspace(layer.plan), OnlyDlpack(x), OnlyDlpack(out))
    assert torch.equal(out, layer(x))


def test_torch_reads_tensors_of_a_checkpoint():
    with moe.Checkpoint(GOLDEN.path) as checkpoint:
        tensor = next(one for one in checkpoint.tensors(GOLDEN.layer) if one.role == moe.Role.UP)
        try:
            found = torch.from_dlpack(tensor)
        except BufferError as error:
            pytest.skip(f"this torch takes no read-only memory: {error}")
        assert found.dtype == torch.bfloat16 and found.data_ptr() == tensor.struct.data
        assert numpy.array_equal(found.float().numpy(), moe.dequantize(tensor, 0))


@needs_gpu
def test_the_current_stream_is_used(layer_of):
    layer, x = layer_of("cuda"), x_on("cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late = x * 1.0  # not ready for a long while: only the same stream sees it whole
        out = layer(late)
    stream.synchronize()
    assert relative_l2(out.cpu(), GOLDEN.y) <= 1e-5
    again = layer(x, stream=stream)
    stream.synchronize()
    assert torch.equal(again, out)
    torch.cuda.synchronize()


@needs_gpu
def test_graph_capture(layer_of):
    """The very first call on the stream is captured; replays follow the input."""
    layer, x = layer_of("cuda", torch.bfloat16), x_on("cuda", torch.bfloat16)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(x)
    for _ in range(3):
        x.copy_(x.flip(0))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, layer(x))


@pytest.fixture
def op():
    if not hasattr(torch.library, "custom_op"):
        pytest.skip(f"torch {torch.__version__} has no torch.library.custom_op")
    from moe import torch_op

    return torch_op


@pytest.mark.parametrize("device", DEVICES)
def test_operator(layer_of, op, device):
    module = op.MoeLayer(layer_of(device))
    x = x_on(device)
    torch.library.opcheck(op.layer_op, (x, module.number), test_utils=["test_schema", "test_faketensor"])
    assert relative_l2(module(x).cpu(), GOLDEN.y) <= 1e-5


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=needs_gpu)])
@pytest.mark.parametrize("device", DEVICES)
def test_compile(layer_of, op, device, backend):
    module = op.MoeLayer(layer_of(device))

    def block(x):
        return x + module(x * 1.0)

    x = x_on(device)
    with torch.no_grad():
        found = torch.compile(block, backend=backend, fullgraph=True)(x)
    assert relative_l2((found - x).cpu(), GOLDEN.y) <= 1e-4


def test_a_layer_that_is_gone(layer_of, op):
    with pytest.raises(RuntimeError, match="no longer exists"):
        op.layer_op(x_on("cpu"), 1 << 40)
