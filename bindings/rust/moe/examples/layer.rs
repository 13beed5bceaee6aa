//! Runs one MoE layer of a checkpoint on a few tokens and says what happened.
//!
//!     layer CHECKPOINT [TOKENS]
//!
//! Without a checkpoint at hand, the command `moe` makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
use moe::{Checkpoint, DeviceKind, Forward, Load, Plan, Stage, Type, Workspace};

fn run(path: &str, n_tokens: usize) -> moe::Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    let layer = checkpoint.layers()?[0];
    let desc = checkpoint.layer(layer)?;
    let options = Plan::options(Type::F32, n_tokens as i64).checkpoint(&checkpoint, layer);
    let plan = options.device(DeviceKind::CPU).create()?; // x and out are host memory
    let weights = Load::new().borrowed_checkpoint(&plan, &checkpoint, layer)?;
    let mut workspace = Workspace::new(&plan)?;
    let family = checkpoint.info()?.family;
    println!("{}, layer {}: top {} of {} experts", family, layer, desc.top_k, desc.n_experts);

    let (hidden, top_k) = (desc.hidden as usize, desc.top_k as usize);
    let x: Vec<f32> = (0..n_tokens * hidden).map(|i| (i as f32 * 0.7).sin()).collect();
    let mut out = vec![0.0f32; n_tokens * hidden];
    let mut ids = vec![0i32; n_tokens * top_k];
    let call = Forward::new(n_tokens).x(&x).out(&mut out).out_ids(&mut ids);
    call.run(&plan, &weights, &mut workspace)?;

    let read_in_place = weights.memory()?.borrowed_bytes;
    let kernel = plan.kernel(Stage::EXPERTS, n_tokens as i64)?;
    println!("experts by {}; weights read in place: {} bytes", kernel, read_in_place);
    for (token, (ids, row)) in ids.chunks(top_k).zip(out.chunks(hidden)).enumerate() {
        let rms = (row.iter().map(|one| one * one).sum::<f32>() / hidden as f32).sqrt();
        println!("token {}: experts {:?}, rms of out {:.4}", token, ids, rms);
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let n_tokens = arguments.get(1).map_or(Some(4), |text| text.parse().ok());
    let (path, n_tokens) = match (arguments.first(), n_tokens) {
        (Some(path), Some(n_tokens)) => (path, n_tokens),
        _ => {
            eprintln!("usage: layer CHECKPOINT [TOKENS]");
            std::process::exit(2);
        }
    };
    if let Err(error) = run(path, n_tokens) {
        eprintln!("layer: {}", error);
        std::process::exit(1);
    }
}
