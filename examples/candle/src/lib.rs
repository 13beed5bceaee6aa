//! The Mixture-of-Experts block of Qwen3-MoE in candle, on the CPU, twice: of candle's own operations ([`CandleBlock`]), and with
//! libmoe as an operation of candle ([`MoeBlock`]). Both hold the same tensors; libmoe reads those of the experts where they lie.
mod candle_block;
mod op;

use candle_core::{DType, Device, Result, Tensor, D};

pub use candle_block::CandleBlock;
pub use op::MoeOp;

/// Sizes of a block and its routing: softmax over all experts, the `top_k` largest, divided by their sum with `norm_topk_prob`.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub hidden: usize,
    pub intermediate: usize,
    pub n_experts: usize,
    pub top_k: usize,
    pub norm_topk_prob: bool,
}

/// Matrices of one expert, `[out, in]`.
#[derive(Clone, Debug)]
pub struct Expert {
    pub gate: Tensor, // [intermediate, hidden]
    pub up: Tensor,   // [intermediate, hidden]
    pub down: Tensor, // [hidden, intermediate]
}

/// All weights of a block. Clones share the tensors' memory.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    pub router: Tensor, // [experts, hidden]
    pub experts: Vec<Expert>,
}

impl BlockWeights {
    /// Random ones, so that values of x of size 1 give outputs of about that size.
    pub fn random(config: &Config, dtype: DType) -> Result<BlockWeights> {
        let matrix = |rows: usize, columns: usize| -> Result<Tensor> {
            let deviation = 1.7 / (columns as f32).sqrt();
            Tensor::randn(0f32, deviation, (rows, columns), &Device::Cpu)?.to_dtype(dtype)
        };
        let expert = |_| -> Result<Expert> {
            Ok(Expert {
                gate: matrix(config.intermediate, config.hidden)?,
                up: matrix(config.intermediate, config.hidden)?,
                down: matrix(config.hidden, config.intermediate)?,
            })
        };
        let experts = (0..config.n_experts).map(expert).collect::<Result<_>>()?;
        Ok(BlockWeights { router: matrix(config.n_experts, config.hidden)?, experts })
    }

    /// The same values in another type: a copy.
    pub fn to_dtype(&self, dtype: DType) -> Result<BlockWeights> {
        let expert = |one: &Expert| -> Result<Expert> {
            Ok(Expert {
                gate: one.gate.to_dtype(dtype)?,
                up: one.up.to_dtype(dtype)?,
                down: one.down.to_dtype(dtype)?,
            })
        };
        let experts = self.experts.iter().map(expert).collect::<Result<_>>()?;
        Ok(BlockWeights { router: self.router.to_dtype(dtype)?, experts })
    }
}

/// candle's part of the routing: x `[T, hidden]` -> ids u32 and weights, `[T, top_k]`.
pub fn route(config: &Config, router: &Tensor, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let logits = x.matmul(&router.t()?)?;
    let scores = candle_nn::ops::softmax_last_dim(&logits)?;
    let order = scores.arg_sort_last_dim(false)?;
    let ids = order.narrow(D::Minus1, 0, config.top_k)?.contiguous()?;
    let weights = scores.gather(&ids, D::Minus1)?.to_dtype(DType::F32)?;
    if !config.norm_topk_prob {
        return Ok((ids, weights));
    }
    let sum = weights.sum_keepdim(D::Minus1)?;
    Ok((ids, weights.broadcast_div(&sum)?))
}

/// The block with libmoe.
pub struct MoeBlock {
    config: Config,
    router: Tensor, // for candle: of the type of x
    op: MoeOp,
}

impl MoeBlock {
    /// x and the result have the type `x_type`. Calls of up to `max_tokens` tokens.
    pub fn new(config: Config, weights: &BlockWeights, x_type: DType, max_tokens: usize) -> Result<MoeBlock> {
        let op = MoeOp::new(&config, weights, x_type, max_tokens)?;
        Ok(MoeBlock { config, router: weights.router.to_dtype(x_type)?, op })
    }

    pub fn op(&self) -> &MoeOp {
        &self.op
    }

    /// x `[T, hidden]` -> `[T, hidden]`, the router too by libmoe.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(&self.op)
    }

    /// The same with candle's routing: libmoe has the experts and the weighted sum.
    pub fn forward_routed(&self, x: &Tensor) -> Result<Tensor> {
        let (ids, weights) = route(&self.config, &self.router, x)?;
        x.apply_op3_no_bwd(&ids.to_dtype(DType::I64)?, &weights, &self.op)
    }
}

/// The largest error of a row: the L2 norm of the difference over that of the expected row. A row of zeros has error 1.
pub fn worst_row(expected: &Tensor, found: &Tensor) -> Result<f32> {
    let (expected, found) = (expected.to_dtype(DType::F32)?, found.to_dtype(DType::F32)?);
    let difference = (&expected - &found)?.sqr()?.sum(D::Minus1)?;
    let errors = (difference / expected.sqr()?.sum(D::Minus1)?)?.sqrt()?.to_vec1::<f32>()?;
    // A NaN is no maximum of f32::max.
    Ok(errors
        .into_iter()
        .fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst }))
}
