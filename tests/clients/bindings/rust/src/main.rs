// Two experts of a float32 layer, one token, the answer known by hand.
//
// Expert e has rows of ones scaled by s_e in gate and up, so gate x = up x = s_e * sum(x) in all 16 features, and a down
// matrix of ones: every output is 16 silu(a) a with a = s_e * sum(x). Ids and weights are given.
#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, deref_nullptr, unknown_lints)]
#[allow(clippy::all)]
mod moe {
    include!(env!("MOE_BINDINGS"));
}

use moe::*;
use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

const HIDDEN: usize = 32;
const INTERMEDIATE: usize = 16;
const SCALES: [f32; 2] = [0.5, -0.25];
const WEIGHTS: [f32; 2] = [0.75, 2.0];

fn check(status: moe_status, what: &str) {
    if status != 0 {
        let sentence = unsafe { CStr::from_ptr(moe_last_error()) };
        panic!("{}: {}: {}", what, status, sentence.to_string_lossy());
    }
}

macro_rules! sized {
    ($kind:ty) => {{
        let mut value: $kind = unsafe { zeroed() };
        value.struct_size = size_of::<$kind>() as u32;
        value
    }};
}

fn stack(role: moe_role, format: &moe_format, rows: usize, columns: usize, data: &[f32]) -> moe_tensor {
    let mut tensor = sized!(moe_tensor);
    tensor.role = role;
    tensor.expert = MOE_ALL_EXPERTS as i32;
    tensor.format = format;
    tensor.n_experts = 2;
    tensor.rows = rows as i64;
    tensor.columns = columns as i64;
    tensor.data = data.as_ptr() as *const _;
    tensor.data_bytes = (data.len() * 4) as u64;
    tensor
}

fn expected(sum: f32) -> f32 {
    let mut result = 0.0;
    for e in 0..2 {
        let a = SCALES[e] * sum;
        result += WEIGHTS[e] * INTERMEDIATE as f32 * (a / (1.0 + (-a).exp())) * a;
    }
    result
}

unsafe fn forward(x: &[f32], out: &mut [f32]) {
    let mut layer = sized!(moe_layer_desc);
    layer.hidden = HIDDEN as i32;
    layer.intermediate = INTERMEDIATE as i32;
    layer.n_experts = 2;
    layer.top_k = 2;
    layer.activation = moe_activation::MOE_ACTIVATION_SILU;
    layer.is_gated = 1;

    let mut f32_format = sized!(moe_format);
    check(moe_format_by_name(b"f32\0".as_ptr() as *const _, &mut f32_format), "format_by_name");
    let mut formats: [*const moe_format; MOE_ROLE_COUNT as usize] = [null(); MOE_ROLE_COUNT as usize];
    for role in [moe_role::MOE_ROLE_GATE, moe_role::MOE_ROLE_UP, moe_role::MOE_ROLE_DOWN].iter() {
        formats[role.0 as usize] = &f32_format;
    }
    let mut plan_desc = sized!(moe_plan_desc);
    plan_desc.device = moe_device_kind::MOE_DEVICE_CPU;
    plan_desc.x_type = moe_type::MOE_TYPE_F32;
    plan_desc.layer = &layer;
    plan_desc.formats = formats.as_ptr();
    plan_desc.n_formats = MOE_ROLE_COUNT as u32;
    plan_desc.max_tokens = 1;
    let mut plan = null_mut();
    check(moe_plan_create(null_mut(), &plan_desc, &mut plan), "plan_create");

    let rows: Vec<f32> = (0..2 * INTERMEDIATE * HIDDEN).map(|i| SCALES[i / (INTERMEDIATE * HIDDEN)]).collect();
    let ones = vec![1.0f32; 2 * HIDDEN * INTERMEDIATE];
    let gate = stack(moe_role::MOE_ROLE_GATE, &f32_format, INTERMEDIATE, HIDDEN, &rows);
    let up = stack(moe_role::MOE_ROLE_UP, &f32_format, INTERMEDIATE, HIDDEN, &rows);
    let down = stack(moe_role::MOE_ROLE_DOWN, &f32_format, HIDDEN, INTERMEDIATE, &ones);
    let tensors: [*const moe_tensor; 3] = [&gate, &up, &down];
    let mut weights_desc = sized!(moe_weights_desc);
    weights_desc.tensors = tensors.as_ptr();
    weights_desc.n_tensors = 3;
    let mut weights = null_mut();
    check(moe_weights_load(plan, &weights_desc, &mut weights), "weights_load");

    let mut workspace_desc = sized!(moe_workspace_desc);
    workspace_desc.plan = plan;
    let mut workspace = null_mut();
    check(moe_workspace_create(null_mut(), &workspace_desc, &mut workspace), "workspace_create");

    let ids = [0i32, 1];
    let mut args = sized!(moe_forward_args);
    args.routing = moe_routing::MOE_ROUTING_IDS_AND_WEIGHTS;
    args.n_tokens = 1;
    args.x = x.as_ptr() as *const _;
    args.ids = ids.as_ptr() as *const _;
    args.weights = WEIGHTS.as_ptr() as *const _;
    args.out = out.as_mut_ptr() as *mut _;
    check(moe_forward(plan, weights, workspace, &args), "forward");

    moe_workspace_destroy(workspace);
    moe_weights_destroy(weights);
    moe_plan_destroy(plan);
}

fn main() {
    assert_eq!(unsafe { moe_abi_version() }, MOE_ABI_VERSION);
    let x: Vec<f32> = (0..HIDDEN).map(|h| h as f32 / 128.0).collect();
    let want = expected(x.iter().sum());
    let mut out = vec![f32::NAN; HIDDEN];
    unsafe { forward(&x, &mut out) };
    for value in &out {
        assert!((value - want).abs() <= 1e-5 * want.abs(), "{} instead of {}", value, want);
    }
    println!("rust client: {} as by hand", want);
}
