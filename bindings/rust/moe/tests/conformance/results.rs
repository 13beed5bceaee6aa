//! Numbers: golden outputs, routing that is given, tensors by hand.
use crate::support::{assert_near, case, relative_l2, root, scratch, status_of, Golden, Random};
use moe::{
    Activation, DeviceKind, Forward, LayerDesc, Load, Plan, Role, Score, Slice, Status, Tensor, Type,
    Weights, Workspace,
};

/// FWD-01
#[test]
fn fwd_01_golden_outputs() {
    let case = case("FWD-01");
    for name in case["fixtures"].list() {
        let golden = Golden::new(&format!("tests/oracle/fixtures/{}", name.str()));
        let (mut handles, t) = (golden.open(), golden.n_tokens);
        let n_experts = handles.plan.shape().n_all_experts;
        let mut ids = vec![-7; golden.ids.len()];
        let mut weights = vec![f32::NAN; golden.weights.len()];
        let mut counts = vec![-7i64; n_experts];
        let mut out = vec![f32::NAN; golden.y.len()];
        let call = Forward::new(t).x(&golden.x).out(&mut out).out_ids(&mut ids).out_weights(&mut weights);
        let call = call.out_expert_counts(&mut counts);
        call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
        let mut wanted = vec![0i64; n_experts];
        golden.ids.iter().for_each(|&id| wanted[id as usize] += 1);
        assert_eq!((&ids, &counts), (&golden.ids, &wanted), "{}", name.str());
        assert_near(&weights, &golden.weights, t, case["relative_l2"].f64());
        assert_near(&out, &golden.y, t, case["relative_l2"].f64());
    }
}

/// FWD-02
#[test]
fn fwd_02_given_routing() {
    let (golden, limit) = (Golden::of_case("FWD-02"), case("FWD-02")["relative_l2"].f64());
    let (mut handles, t) = (golden.open(), golden.n_tokens);
    let n_experts = handles.plan.shape().n_all_experts;
    let mut out = vec![f32::NAN; golden.y.len()];
    let mut run =
        |call: Forward<'_>| call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    let wide: Vec<i64> = golden.ids.iter().map(|&id| id as i64).collect();
    run(Forward::new(t).x(&golden.x).out(&mut out).ids(&wide).weights(&golden.weights));
    assert_near(&out, &golden.y, t, limit);

    let (mut logits, mut computed) = (vec![f32::NAN; t * n_experts], vec![f32::NAN; golden.y.len()]);
    run(Forward::new(t).x(&golden.x).out(&mut computed).out_logits(&mut logits));
    let mut ids = vec![-7; golden.ids.len()];
    run(Forward::new(t).x(&golden.x).out(&mut out).logits(&logits).out_ids(&mut ids));
    assert_eq!((&out, &ids), (&computed, &golden.ids));

    run(Forward::new(t).x(&golden.x).out(&mut out).ids(&vec![-1; ids.len()]).weights(&golden.weights));
    assert!(out.iter().all(|&one| one == 0.0));
    run(Forward::new(0).x(&golden.x[..0]).out(&mut out[..0]));
    run(Forward::new(0));
}

/// FWD-02
#[test]
fn fwd_02_accumulation_and_fewer_tokens() {
    let golden = Golden::of_case("FWD-02");
    let (mut handles, t) = (golden.open(), golden.n_tokens);
    let width = golden.y.len() / t;
    let mut run =
        |call: Forward<'_>| call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    let mut out = golden.y.clone();
    run(Forward::new(t).x(&golden.x).out(&mut out).accumulate(true));
    let twice: Vec<f32> = golden.y.iter().map(|one| 2.0 * one).collect();
    assert_near(&out, &twice, t, 1e-5);
    out.fill(7.0);
    run(Forward::new(t).x(&golden.x).out(&mut out).n_tokens_device(&[2i32]));
    assert_near(&out[..2 * width], &golden.y[..2 * width], 2, 1e-5);
    assert!(out[2 * width..].iter().all(|&one| one == 7.0));
}

#[test]
fn slices_add_up() {
    let golden = Golden::of_case("FWD-02");
    let checkpoint = golden.open().checkpoint;
    let mut total = vec![0.0f32; golden.y.len()];
    for part in [0..5, 5..12] {
        let slice = Slice::new().experts(part.clone());
        let plan = golden.options(&checkpoint).partial(true).slice(slice).create().unwrap();
        let weights = Weights::load_checkpoint(&plan, &checkpoint, golden.layer).unwrap();
        assert_eq!(weights.memory().unwrap().n_local_experts as usize, part.len());
        let call = Forward::new(golden.n_tokens).x(&golden.x).out(&mut total).accumulate(true);
        call.run(&plan, &weights, &mut Workspace::new(&plan).unwrap()).unwrap();
    }
    assert_near(&total, &golden.y, golden.n_tokens, 1e-5);
}

/// A small float32 layer, its matrices, and what the sums of moe.h section 4 give.
struct Small {
    layer: LayerDesc,
    router: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
    x: Vec<f32>,
    wanted: Vec<f32>,
}

const N_TOKENS: usize = 5;

impl Small {
    fn new() -> Small {
        let given = case("FWD-04")["layer"].clone();
        let field = |name: &str| given[name].i64() as i32;
        let layer = LayerDesc {
            hidden: field("hidden"),
            intermediate: field("intermediate"),
            n_experts: field("n_experts"),
            top_k: field("top_k"),
            has_router: field("has_router") == 1,
            score: Score(field("score") as u32),
            activation: Activation(field("activation") as u32),
            is_gated: field("is_gated") == 1,
            ..Default::default()
        };
        let (h, i, e) = (layer.hidden as usize, layer.intermediate as usize, layer.n_experts as usize);
        let mut random = Random::new(7);
        let mut small = Small {
            layer,
            router: random.floats(e * h),
            gate: random.floats(e * i * h),
            up: random.floats(e * i * h),
            down: random.floats(e * h * i),
            x: random.floats(N_TOKENS * h),
            wanted: Vec::new(),
        };
        small.wanted = small.x.chunks(h).flat_map(|row| small.by_hand(row)).collect();
        small
    }

    fn by_hand(&self, x: &[f32]) -> Vec<f32> {
        let (h, i) = (self.layer.hidden as usize, self.layer.intermediate as usize);
        let dot = |a: &[f32], b: &[f64]| a.iter().zip(b).map(|(&a, &b)| a as f64 * b).sum::<f64>();
        let x: Vec<f64> = x.iter().map(|&one| one as f64).collect();
        let exponentials: Vec<f64> = self.router.chunks(h).map(|row| dot(row, &x).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        let mut order: Vec<usize> = (0..exponentials.len()).collect();
        order.sort_by(|&a, &b| exponentials[b].partial_cmp(&exponentials[a]).unwrap());
        let mut out = vec![0.0f64; h];
        for &expert in &order[..self.layer.top_k as usize] {
            let at = expert * i * h..(expert + 1) * i * h;
            let (gate, up) = (&self.gate[at.clone()], &self.up[at.clone()]);
            let hidden: Vec<f64> = gate
                .chunks(h)
                .zip(up.chunks(h))
                .map(|(gate, up)| {
                    let g = dot(gate, &x);
                    g / (1.0 + (-g).exp()) * dot(up, &x)
                })
                .collect();
            for (one, row) in out.iter_mut().zip(self.down[at].chunks(i)) {
                *one += exponentials[expert] / sum * dot(row, &hidden);
            }
        }
        out.iter().map(|&one| one as f32).collect()
    }

    fn plan(&self) -> Plan {
        let mut options = Plan::options(Type::F32, N_TOKENS as i64).layer(self.layer).device(DeviceKind::CPU);
        for role in [Role::ROUTER, Role::GATE, Role::UP, Role::DOWN] {
            options = options.format(role, moe::Format::named("f32").unwrap());
        }
        options.create().unwrap()
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        let (h, i, e) =
            (self.layer.hidden as i64, self.layer.intermediate as i64, self.layer.n_experts as i64);
        vec![
            Tensor::dense(Role::ROUTER, e, h, &self.router),
            Tensor::dense(Role::GATE, i, h, &self.gate).stack(e),
            Tensor::dense(Role::UP, i, h, &self.up).stack(e),
            Tensor::dense(Role::DOWN, h, i, &self.down).stack(e),
        ]
    }

    fn error(&self, plan: &Plan, weights: &Weights<'_>) -> f64 {
        let mut out = vec![f32::NAN; self.wanted.len()];
        let call = Forward::new(N_TOKENS).x(&self.x).out(&mut out);
        call.run(plan, weights, &mut Workspace::new(plan).unwrap()).unwrap();
        relative_l2(&out, &self.wanted, self.layer.hidden as usize)
    }
}

/// FWD-04
#[test]
fn fwd_04_tensors_by_hand() {
    let (small, limit) = (Small::new(), case("FWD-04")["relative_l2"].f64());
    let plan = small.plan();
    let copied = Weights::load(&plan, &small.tensors()).unwrap();
    let borrowed = Load::new().borrowed(&plan, &small.tensors()).unwrap();
    let mut memory = vec![0u8; Weights::size(&plan, &small.tensors()).unwrap() as usize + 64];
    let begin = memory.as_ptr().align_offset(64);
    let placed = Load::new().into_memory(&mut memory[begin..]).tensors(&plan, &small.tensors()).unwrap();
    for (weights, is_borrowed) in [(&copied, false), (&borrowed, true), (&placed, false)] {
        let report = weights.memory().unwrap();
        assert_eq!(report.role_bytes(Role::GATE), small.gate.len() as u64 * 4);
        assert_eq!(report.borrowed_bytes > 0, is_borrowed);
        assert!(small.error(&plan, weights) <= limit);
    }
}

/// FWD-04
#[test]
fn fwd_04_one_slice_per_expert_and_update() {
    let (small, limit) = (Small::new(), case("FWD-04")["relative_l2"].f64());
    let (plan, f32s) = (small.plan(), moe::Format::named("f32").unwrap());
    let (h, i) = (small.layer.hidden as i64, small.layer.intermediate as i64);
    let mut gates: Vec<&[f32]> = small.gate.chunks((h * i) as usize).collect();
    let last = std::mem::replace(&mut gates[3], small.gate.get(..(h * i) as usize).unwrap());
    let mut tensors = small.tensors();
    tensors[1] = Tensor::per_expert(Role::GATE, &f32s, i, h, &gates).unwrap();
    let mut weights = Weights::load(&plan, &tensors).unwrap();
    assert!(small.error(&plan, &weights) > 1e-3);
    weights.update(&Tensor::dense(Role::GATE, i, h, last).expert(3)).unwrap();
    assert!(small.error(&plan, &weights) <= limit);
    let mut weights = Weights::load(&plan, &tensors).unwrap();
    let stream = std::ptr::null_mut();
    // SAFETY: weights of the CPU have no stream.
    unsafe { weights.update_on(&Tensor::dense(Role::GATE, i, h, last).expert(3), stream).unwrap() };
    assert!(small.error(&plan, &weights) <= limit);

    let mut weights = Load::new().borrowed(&plan, &tensors).unwrap();
    let tensor = Tensor::dense(Role::GATE, i, h, last).expert(3);
    crate::support::refused_by_name(weights.update(&tensor), "tensor");
    // SAFETY: as above.
    crate::support::refused_by_name(unsafe { weights.update_on(&tensor, stream) }, "tensor");
    weights.update_borrowed(&tensor).unwrap();
    assert!(small.error(&plan, &weights) <= limit);
}

/// FWD-04
#[test]
fn fwd_04_a_missing_tensor_is_named() {
    let small = Small::new();
    let error = Weights::load(&small.plan(), &small.tensors()[..3]).unwrap_err();
    assert!(error.message().contains("down"), "{}", error);
}

/// FWD-05
#[test]
fn fwd_05_an_absent_device_is_refused() {
    let golden = Golden::of_case("FWD-02");
    let checkpoint = golden.open().checkpoint;
    let options = golden.options(&checkpoint).device(DeviceKind::CUDA).device_index(1000);
    let status = status_of(options.create());
    let has_cuda =
        moe::build_info().unwrap().lines().any(|line| line.starts_with("backends=") && line.contains("cuda"));
    assert!(has_cuda || status == Status::NOT_BUILT, "{:?}", status);
}

/// BAD-03
#[test]
fn bad_03_a_damaged_checkpoint() {
    let case = case("BAD-03");
    let folder = scratch("damaged");
    for file in std::fs::read_dir(root().join(case["source"].str())).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let file = folder.join("model.safetensors");
    std::fs::write(&file, &std::fs::read(&file).unwrap()[..100]).unwrap();
    let opened = moe::Checkpoint::open(&folder);
    assert!(opened.as_ref().unwrap_err().message().contains("model.safetensors"));
    assert_eq!(status_of(opened).0 as i64, case["status"].i64());
}

#[test]
fn bfloat16_in_and_out() {
    let golden = Golden::of_case("FWD-02");
    let handles = golden.open();
    let options =
        Plan::options(Type::BF16, 64).checkpoint(&handles.checkpoint, golden.layer).device(DeviceKind::CPU);
    let plan = options.create().unwrap();
    let x: Vec<moe::Bf16> = golden.x.iter().map(|&one| moe::Bf16::from_f32(one)).collect();
    assert!(x.iter().zip(&golden.x).all(|(bits, &value)| bits.to_f32() == value)); // exact in the fixtures
    let mut out = vec![moe::Bf16::default(); golden.y.len()];
    let call = Forward::new(golden.n_tokens).x(&x).out(&mut out);
    call.run(&plan, &handles.weights, &mut Workspace::new(&plan).unwrap()).unwrap();
    let values: Vec<f32> = out.iter().map(|bits| bits.to_f32()).collect();
    assert_near(&values, &golden.y, golden.n_tokens, 2e-2);
    assert_eq!(moe::Bf16::from_f32(1.0 + 3.0 / 256.0).to_f32(), 1.0 + 4.0 / 256.0);
}

#[test]
fn saved_weights_are_for_cuda_plans() {
    let golden = Golden::of_case("FWD-02");
    let handles = golden.open();
    assert_eq!(status_of(handles.weights.save("packed")), Status::UNSUPPORTED);
    assert_eq!(status_of(Weights::open(&handles.plan, "packed")), Status::UNSUPPORTED);
}
