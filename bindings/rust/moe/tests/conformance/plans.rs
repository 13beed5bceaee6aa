//! Plans and what they say of themselves; the lists of formats, families and devices.
use crate::support::values::json;
use crate::support::{case, root, schema, status_of, text, Golden, Value};
use moe::{
    Checkpoint, DeviceKind, ExplainForm, Format, Plan, Residency, Role, Slice, Stage, Status, Type, Weights,
    Workspace,
};

fn golden() -> (Golden, Checkpoint) {
    let golden = Golden::of_case("PLAN-02");
    let checkpoint = Checkpoint::open(&golden.path).unwrap();
    (golden, checkpoint)
}

fn facts(plan: &Plan) -> Value {
    json(&plan.explain(ExplainForm::JSON).unwrap())
}

/// PLAN-01
#[test]
fn plan_01_explain() {
    let (golden, checkpoint) = golden();
    let case = case("PLAN-01");
    let rules = json(&text(&root().join(case["schema_file"].str())));
    for options in [golden.options(&checkpoint), golden.options(&checkpoint).unfused(true)] {
        let plan = options.create().unwrap();
        let found = facts(&plan);
        assert_eq!(found["schema"].str(), case["schema"].str());
        schema::check(&found, &rules, &rules, "explain").unwrap();
        assert!(plan.explain(ExplainForm::TEXT).unwrap().contains(found["device"]["kind"].str()));
    }
}

/// PLAN-02
#[test]
fn plan_02_defaults() {
    let (golden, checkpoint) = golden();
    for (name, wanted) in case("PLAN-02")["defaults"].entries() {
        let x_type = [Type::F32, Type::BF16, Type::F16].into_iter().find(|kind| kind.text().unwrap() == name);
        let options = Plan::options(x_type.unwrap(), 1).checkpoint(&checkpoint, golden.layer);
        let plan = options.clone().device(DeviceKind::CPU).create().unwrap();
        let found = facts(&plan);
        assert_eq!(found["types"]["x"].str(), name);
        for (which, kind) in wanted.entries() {
            assert_eq!(&found["types"][which], kind);
        }
        assert_eq!(plan.out_type().text().unwrap(), wanted["out"].str());
        assert_eq!(found["slice"]["whole"], Value::Bool(true));
        assert!(found["stages"].list().iter().all(|stage| stage["used"] == Value::Bool(true)));
        let automatic = options.create().unwrap().device().unwrap();
        assert!(
            [DeviceKind::CPU, DeviceKind::CUDA].contains(&automatic.kind) && !automatic.reason.is_empty()
        );
    }
}

/// PLAN-02
#[test]
fn plan_02_required_fields_are_required() {
    let (golden, checkpoint) = golden();
    let message = |x_type, max_tokens| {
        let options =
            Plan::options(x_type, max_tokens).checkpoint(&checkpoint, golden.layer).device(DeviceKind::CPU);
        options.supports().unwrap_err().message()
    };
    assert!(message(Type::F32, 0).contains("max_tokens is 0"));
    assert!(message(Type::NONE, 1).contains("x_type"));
    assert!(message(Type::F64, 1).contains("x_type"));
    assert!(golden.options(&checkpoint).supports().is_ok());
}

/// PLAN-02: the sizes that this crate checks memory with are those of the plan.
#[test]
fn plan_02_shape_is_that_of_the_plan() {
    let (golden, checkpoint) = golden();
    let slice = Slice::new().experts(0..6).intermediate(0..16);
    for options in [golden.options(&checkpoint), golden.options(&checkpoint).partial(true).slice(slice)] {
        let plan = options.create().unwrap();
        let (shape, found) = (plan.shape(), facts(&plan));
        let of = |place: &Value| place.i64() as usize;
        assert_eq!(shape.hidden, of(&found["layer"]["hidden"]));
        assert_eq!(shape.top_k, of(&found["layer"]["top_k"]));
        assert_eq!(
            (shape.n_experts, shape.n_all_experts),
            (of(&found["layer"]["n_experts"]), shape.n_experts)
        );
        assert_eq!(shape.n_local_experts, of(&found["slice"]["n_local_experts"]));
        assert_eq!(shape.n_features, 2 * of(&found["slice"]["intermediate"].list()[1]));
    }
}

/// PLAN-03
#[test]
fn plan_03_keys_and_layout_ids() {
    let (golden, checkpoint) = golden();
    let more = || Plan::options(Type::F32, 65).checkpoint(&checkpoint, golden.layer).device(DeviceKind::CPU);
    let key = golden.options(&checkpoint).key().unwrap();
    assert_eq!(key, golden.options(&checkpoint).key().unwrap());
    assert_ne!(key, more().key().unwrap());
    let small = golden.options(&checkpoint).create().unwrap();
    let hex: String = key.iter().map(|byte| format!("{:02x}", byte)).collect();
    assert_eq!(facts(&small)["key"].str(), hex);
    let id = small.layout_id().unwrap();
    assert_eq!(id, more().create().unwrap().layout_id().unwrap());
    let weights = Weights::load_checkpoint(&small, &checkpoint, golden.layer).unwrap();
    assert_eq!(weights.layout_id().unwrap(), id);
    let part = golden.options(&checkpoint).partial(true).slice(Slice::new().experts(0..6)).create().unwrap();
    assert_ne!(part.layout_id().unwrap(), id);
    let mut out = vec![0.0f32; golden.y.len()];
    let call = moe::Forward::new(golden.n_tokens).x(&golden.x).out(&mut out);
    assert_eq!(
        status_of(call.run(&part, &weights, &mut Workspace::new(&small).unwrap())),
        Status::LAYOUT_MISMATCH
    );
}

/// PLAN-04
#[test]
fn plan_04_kernels_and_candidates() {
    let (golden, checkpoint) = golden();
    let plan = golden.options(&checkpoint).create().unwrap();
    let candidates = plan.candidates().unwrap();
    for (name, number) in case("PLAN-04")["stages"].entries() {
        let stage = Stage(number.i64() as u32);
        assert_eq!(stage.name().unwrap().to_lowercase(), *name);
        let chosen: Vec<_> = candidates.iter().filter(|one| one.stage == stage && one.chosen).collect();
        assert_eq!(chosen.len(), 1);
        assert_eq!(chosen[0].kernel, plan.kernel(stage, 1).unwrap());
        assert!(chosen[0].applicable && chosen[0].reason_code == "chosen" && !chosen[0].reason.is_empty());
    }
    let refused = golden.options(&checkpoint).kernel_filter("no_such_kernel").supports();
    assert!(refused.as_ref().unwrap_err().message().contains("no_such_kernel"));
    assert_eq!(status_of(refused), Status::INVALID_ARGUMENT);
    let need = plan.workspace_need(64).unwrap();
    assert!(need.host_bytes > 0 && need.device_bytes == 0 && need.alignment.is_power_of_two());
}

/// PLAN-05
#[test]
fn plan_05_unknown_enum_values_are_kept() {
    let (golden, checkpoint) = golden();
    let number = case("PLAN-05")["unknown_value"].i64() as u32;
    assert_eq!(format!("{:?} {:?}", Type(number), Type::BF16), format!("Type({}) Type::BF16", number));
    let text = number.to_string();
    let refused = golden.options(&checkpoint).residency(Residency(number)).create();
    assert!(refused.unwrap_err().message().contains(&text));
    let mut layer = checkpoint.layer(golden.layer).unwrap();
    assert_eq!(layer.activation, moe::Activation::SILU);
    layer.activation = moe::Activation(number);
    assert!(layer.validate().unwrap_err().message().contains(&text));
    assert_eq!(layer.activation.0, number);
    assert_eq!((Type(number).text().unwrap(), Role(number).text().unwrap()), ("unknown", "unknown"));
}

/// LIST-01
#[test]
fn list_01_formats() {
    let (case, names) = (case("LIST-01"), moe::formats().unwrap());
    assert!(case["formats"].list().iter().all(|name| names.contains(&name.str())));
    for name in names {
        let info = Format::named(name).unwrap().info().unwrap();
        assert!(
            info.name == name
                && info.has_decode
                && info.bits_per_weight > 0.0
                && info.bits_per_weight <= 32.0
        );
    }
    let size = &case["size"];
    let found =
        Format::named(size["format"].str()).unwrap().size(size["rows"].i64(), size["columns"].i64()).unwrap();
    assert_eq!(
        (found.data_bytes as i64, found.scale_bytes as i64),
        (size["data_bytes"].i64(), size["scale_bytes"].i64())
    );
}

/// LIST-02
#[test]
fn list_02_families_and_devices() {
    let names = moe::families().unwrap();
    assert!(case("LIST-02")["families"].list().iter().all(|name| names.contains(&name.str())));
    assert_eq!(moe::device_count(DeviceKind::CPU).unwrap(), 1);
    let info = moe::device_info(DeviceKind::CPU, 0).unwrap();
    assert!(info.kind == DeviceKind::CPU && info.n_cores >= 1 && info.memory_bytes > 0);
}

#[test]
fn checkpoints_describe_themselves() {
    let (golden, checkpoint) = golden();
    let info = checkpoint.info().unwrap();
    assert_eq!((info.family.as_str(), info.is_gguf), ("qwen3_moe", false));
    assert!(checkpoint.layers().unwrap().contains(&golden.layer));
    let formats = checkpoint.formats(golden.layer).unwrap();
    assert!(formats.iter().any(|(role, format)| *role == Role::GATE && format.kind == Type::BF16));
    assert!(formats.iter().all(|(role, _)| *role != Role::LATENT_IN));
    let tensors = checkpoint.tensors(golden.layer).unwrap();
    for role in [Role::ROUTER, Role::GATE, Role::UP, Role::DOWN] {
        let tensor = tensors.iter().find(|tensor| tensor.role() == role).unwrap();
        assert!(tensor.data().unwrap().iter().any(|&byte| byte != 0));
    }
    assert_eq!(status_of(checkpoint.layer(999)), Status::NOT_FOUND);
    let plan = golden.options(&checkpoint).create().unwrap();
    let weights = Weights::load(&plan, &tensors).unwrap();
    assert_eq!(weights.layout_id().unwrap(), plan.layout_id().unwrap());
    assert_eq!(
        moe::dequantize(&tensors[0], 0).unwrap().len() as i64,
        tensors[0].shape().0 * tensors[0].shape().1
    );
}
