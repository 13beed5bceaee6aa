//! The time of one block, libmoe beside candle, in microseconds.
//!
//!     moe-candle [--experts N] [--seconds S]
//!
//! The sizes are those of Qwen3-30B-A3B. Calls take turns, with another x each time, so that other experts are read: the weights come
//! from memory. Both have as many threads as candle takes, which RAYON_NUM_THREADS sets.
use std::time::Instant;

use candle_core::{utils::get_num_threads, DType, Device, Result, Tensor};
use moe_candle::{worst_row, BlockWeights, CandleBlock, Config, MoeBlock};

const TOKENS: [usize; 3] = [1, 16, 128];
const INPUTS: usize = 32;

struct Case {
    name: &'static str,
    candle: CandleBlock,
    libmoe: MoeBlock,
    x_type: DType,
}

fn argument(name: &str, default: f64) -> f64 {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|one| one == name);
    let text = at.map(|at| arguments.get(at + 1).cloned().unwrap_or_default());
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} {text}: a number")))
}

fn timed(call: impl FnOnce() -> Result<Tensor>) -> Result<(f64, Tensor)> {
    let begin = Instant::now();
    let out = call()?;
    Ok((begin.elapsed().as_secs_f64() * 1e6, out))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints a row: medians of the calls, the median of the ratios of neighbours, and the largest error of a token.
fn measure(case: &Case, n_tokens: usize, config: &Config, seconds: f64) -> Result<()> {
    let input = |_| Tensor::randn(0f32, 1f32, (n_tokens, config.hidden), &Device::Cpu)?.to_dtype(case.x_type);
    let inputs = (0..INPUTS).map(input).collect::<Result<Vec<_>>>()?;
    let (mut candle, mut libmoe, mut ratios, mut worst) = (Vec::new(), Vec::new(), Vec::new(), 0f32);
    let begin = Instant::now();
    for i in 0.. {
        // Each call has an x that the other does not read next, so that neither finds experts in the cache.
        let (a, b) = (&inputs[i % INPUTS], &inputs[(i + INPUTS / 2) % INPUTS]);
        let (candle_time, _) = timed(|| case.candle.forward(a))?;
        let (libmoe_time, _) = timed(|| case.libmoe.forward(b))?;
        if i < 4 {
            // With candle's routing: in f16 it may choose another expert, whose score is rounded to the same value.
            let found = case.libmoe.forward_routed(b)?;
            worst = worst.max(worst_row(&case.candle.forward(b)?, &found)?);
            continue; // the first calls make workspaces and threads
        }
        candle.push(candle_time);
        libmoe.push(libmoe_time);
        ratios.push(candle_time / libmoe_time);
        if i >= 8 && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    println!(
        "| {} | {n_tokens} | {:.0} | {:.0} | {:.2} | {worst:.1e} | `{}` |",
        case.name,
        median(&mut candle),
        median(&mut libmoe),
        median(&mut ratios),
        case.libmoe.op().kernel(n_tokens)?
    );
    Ok(())
}

fn run() -> Result<()> {
    let config = Config {
        hidden: 2048,
        intermediate: 768,
        n_experts: argument("--experts", 128.0) as usize,
        top_k: 8,
        norm_topk_prob: true,
    };
    let seconds = argument("--seconds", 5.0);
    println!("{config:?}, {} threads", get_num_threads());
    println!("| weights | T | candle, us | libmoe, us | candle / libmoe | error | kernel |\n|--|--|--|--|--|--|--|");
    let max_tokens = TOKENS[TOKENS.len() - 1];
    // candle has no bf16 GEMM on the CPU: it gets the same values as f32.
    for (name, dtype, candle_type, x_type) in [
        ("f32", DType::F32, DType::F32, DType::F32),
        ("f16", DType::F16, DType::F16, DType::F16),
        ("bf16, candle f32", DType::BF16, DType::F32, DType::F32),
    ] {
        let weights = BlockWeights::random(&config, dtype)?;
        let case = Case {
            name,
            candle: CandleBlock::new(config, &weights.to_dtype(candle_type)?),
            libmoe: MoeBlock::new(config, &weights, x_type, max_tokens)?,
            x_type,
        };
        drop(weights);
        for n_tokens in TOKENS {
            measure(&case, n_tokens, &config, seconds)?;
        }
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("moe-candle: {error}");
        std::process::exit(1);
    }
}
