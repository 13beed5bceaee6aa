//! The block in candle's operations, step by step as candle-transformers has it for the CPU: the rows of each expert are gathered, go
//! through its three matrices, and are added to the output. A test holds it against candle-transformers' whole model.
use candle_core::{Result, Tensor};

use crate::{route, BlockWeights, Config, Expert};

pub struct CandleBlock {
    config: Config,
    weights: BlockWeights,
}

/// Rows of x that chose one expert, and with which weight.
#[derive(Clone, Default)]
struct Rows {
    tokens: Vec<u32>,
    weights: Vec<f32>,
}

impl CandleBlock {
    pub fn new(config: Config, weights: &BlockWeights) -> CandleBlock {
        CandleBlock { config, weights: weights.clone() }
    }

    /// x `[T, hidden]` -> `[T, hidden]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut out = x.zeros_like()?;
        for (expert, rows) in self.weights.experts.iter().zip(self.dispatch(x)?) {
            if rows.tokens.is_empty() {
                continue;
            }
            let count = rows.tokens.len();
            let tokens = Tensor::from_vec(rows.tokens, count, x.device())?;
            let weights = Tensor::from_vec(rows.weights, (count, 1), x.device())?.to_dtype(x.dtype())?;
            let rows = mlp(expert, &x.index_select(&tokens, 0)?)?;
            out = out.index_add(&tokens, &rows.broadcast_mul(&weights)?, 0)?;
        }
        Ok(out)
    }

    fn dispatch(&self, x: &Tensor) -> Result<Vec<Rows>> {
        let (ids, weights) = route(&self.config, &self.weights.router, x)?;
        let (ids, weights) = (ids.to_vec2::<u32>()?, weights.to_vec2::<f32>()?);
        let mut rows = vec![Rows::default(); self.config.n_experts];
        for (token, (ids, weights)) in ids.iter().zip(&weights).enumerate() {
            for (&id, &weight) in ids.iter().zip(weights) {
                rows[id as usize].tokens.push(token as u32);
                rows[id as usize].weights.push(weight);
            }
        }
        Ok(rows)
    }
}

fn mlp(expert: &Expert, x: &Tensor) -> Result<Tensor> {
    let gate = x.matmul(&expert.gate.t()?)?.silu()?;
    let up = x.matmul(&expert.up.t()?)?;
    (gate * up)?.matmul(&expert.down.t()?)
}
