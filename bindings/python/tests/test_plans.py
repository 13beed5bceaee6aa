"""Plans and what they say of themselves; the lists of formats, families and devices."""
import json

import jsonschema
import pytest
from conftest import CASES
from oracle import ROOT, Golden

import moe

GOLDEN = Golden(CASES["PLAN-02"]["fixture"])


@pytest.fixture(scope="module")
def checkpoint():
    return moe.Checkpoint(GOLDEN.path)


def plan_of(checkpoint, **options):
    return moe.Plan(**GOLDEN.options(checkpoint, **options))


@pytest.mark.case("PLAN-01")
@pytest.mark.parametrize("options", [{}, {"unfused": True, "x_type": "bf16"}, {"kernel_filter": "-avx512_dense_f32_experts"}, {"kernel_filter": "experts:*_f32_*"}])
def test_explain(checkpoint, case, options):
    if "kernel_filter" in options and not moe.Plan.supports(**GOLDEN.options(checkpoint, **options)):
        pytest.skip("this build has no such kernel to forbid")
    plan = plan_of(checkpoint, **options)
    schema = json.loads((ROOT / case["schema_file"]).read_text())
    found = json.loads(plan.explain("json"))
    assert found["schema"] == case["schema"]
    jsonschema.validate(found, schema)
    assert plan.facts == found
    assert found["device"]["kind"] in plan.explain()


@pytest.mark.case("PLAN-02")
def test_defaults(checkpoint, case):
    for x_type, wanted in case["defaults"].items():
        base = dict(checkpoint=checkpoint, checkpoint_layer=GOLDEN.layer)
        facts = moe.Plan(**base, device="cpu", x_type=x_type, max_tokens=1).facts
        assert facts["types"] == {"x": x_type, **wanted}
        assert facts["slice"]["whole"] and not facts["slice"]["partial"]
        assert all(stage["used"] for stage in facts["stages"])
        automatic = moe.Plan(**base, x_type=x_type, max_tokens=1).device
        assert automatic.kind in (moe.DeviceKind.CPU, moe.DeviceKind.CUDA) and automatic.reason


@pytest.mark.case("PLAN-02")
def test_required_fields_are_required(checkpoint):
    with pytest.raises(TypeError, match="max_tokens"):
        moe.Plan(x_type="f32", checkpoint=checkpoint)
    with pytest.raises(moe.InvalidArgumentError, match="max_tokens is 0"):
        plan_of(checkpoint, max_tokens=0)
    with pytest.raises(moe.InvalidArgumentError, match="x_type"):
        plan_of(checkpoint, x_type="none")
    refusal = moe.Plan.refusal(**GOLDEN.options(checkpoint, x_type="f64"))
    assert isinstance(refusal, moe.MoeError) and "x_type" in refusal.message


@pytest.mark.case("PLAN-03")
def test_keys_and_layout_ids(checkpoint):
    options = GOLDEN.options(checkpoint)
    key = moe.Plan.key(**options)
    assert len(key) == 16 and key == moe.Plan.key(**options)
    assert key.hex() == moe.Plan(**options).facts["key"]
    assert key != moe.Plan.key(**options | {"max_tokens": 65})
    small, large = plan_of(checkpoint), plan_of(checkpoint, max_tokens=65)
    assert small.layout_id == large.layout_id and len(small.layout_id) == 16
    weights = moe.Weights.load_checkpoint(small, checkpoint, GOLDEN.layer)
    assert weights.layout_id == large.layout_id
    partial = plan_of(checkpoint, partial=True, slice=moe.Slice(experts=range(0, 6)))
    assert partial.layout_id != small.layout_id and partial.shape.n_local_experts == 6
    with pytest.raises(moe.LayoutMismatchError):
        moe.forward(partial, weights, moe.Workspace(small), GOLDEN.x)


@pytest.mark.case("PLAN-04")
def test_kernels_and_candidates(checkpoint, case):
    plan = plan_of(checkpoint)
    candidates = plan.candidates
    for name, stage in case["stages"].items():
        assert moe.Stage.of(name) == stage
        chosen = [one for one in candidates if one.stage == stage and one.chosen]
        assert [one.kernel for one in chosen] == [plan.kernel(name, 1)]
        assert chosen[0].applicable and chosen[0].reason_code == "chosen" and chosen[0].reason
    refused = moe.Plan.refusal(**GOLDEN.options(checkpoint, kernel_filter="no_such_kernel"))
    assert isinstance(refused, moe.InvalidArgumentError) and "no_such_kernel" in refused.message


@pytest.mark.case("PLAN-05")
def test_unknown_enum_values_are_kept(checkpoint, case):
    number = case["unknown_value"]
    for kind in (moe.Type, moe.Activation, moe.Residency):
        assert kind(number) == number and kind.of(number).name == f"UNKNOWN_{number}"
    with pytest.raises(moe.MoeError, match=str(number)):
        plan_of(checkpoint, residency=number)
    layer = checkpoint.layer(GOLDEN.layer)
    assert layer.activation == moe.Activation.SILU
    with pytest.raises(moe.MoeError, match=str(number)):
        layer.replace(activation=number).validate()
    assert layer.replace(activation=number).activation == number
    assert moe.type_name(number) == moe.role_name(number) == "unknown"


@pytest.mark.case("LIST-01")
def test_formats(case):
    assert set(case["formats"]) <= set(moe.formats())
    for name in moe.formats():
        info = moe.Format.named(name).info
        assert info.name == name and info.has_decode and 0 < info.bits_per_weight <= 32
    size = case["size"]
    found = moe.Format.named(size["format"]).size(size["rows"], size["columns"])
    assert found == (size["data_bytes"], size["scale_bytes"])


@pytest.mark.case("LIST-02")
def test_families_and_devices(case):
    assert set(case["families"]) <= set(moe.families())
    assert moe.device_count("cpu") == 1
    info = moe.device_info("cpu")
    assert info.kind == moe.DeviceKind.CPU and info.n_cores >= 1 and info.memory_bytes > 0


def test_checkpoints_describe_themselves(checkpoint):
    info = checkpoint.info
    assert (info.family, info.is_gguf, info.n_layers) == ("qwen3_moe", False, len(checkpoint.layers))
    assert GOLDEN.layer in checkpoint.layers
    formats = checkpoint.formats(GOLDEN.layer)
    assert formats[moe.Role.GATE].type == moe.Type.BF16 and moe.Role.LATENT_IN not in formats
    tensors = checkpoint.tensors(GOLDEN.layer)
    assert {one.role for one in tensors} >= {moe.Role.ROUTER, moe.Role.GATE, moe.Role.UP, moe.Role.DOWN}
    with pytest.raises(moe.NotFoundError):
        checkpoint.layer(999)
    with pytest.raises(moe.UnsupportedError, match="no such family"):
        moe.Checkpoint(GOLDEN.path, family="no such family")


def test_names():
    assert moe.role_name(moe.Role.SHARED_DOWN) == "shared_down" and moe.type_name(moe.Type.F8_E4M3) == "f8_e4m3"
    with pytest.raises(ValueError, match="'silk' is no Activation: none, silu"):
        moe.LayerDesc(activation="silk")
