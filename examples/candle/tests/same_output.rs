//! libmoe in candle gives what candle gives: per token, within 1e-5 for f32.
use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor};
use candle_transformers::models::qwen3_moe;
use moe_candle::{route, worst_row, BlockWeights, CandleBlock, Config, MoeBlock};

const TOKENS: [usize; 6] = [1, 2, 3, 7, 16, 61];

fn config(hidden: usize, intermediate: usize, n_experts: usize, top_k: usize) -> Config {
    Config { hidden, intermediate, n_experts, top_k, norm_topk_prob: true }
}

/// Sizes that no vector width and no tile divides, one expert for all, all experts for each, and Qwen3's.
fn shapes() -> Vec<Config> {
    vec![
        config(64, 48, 8, 2),
        config(96, 80, 13, 5),
        config(160, 112, 5, 5),
        config(352, 208, 1, 1),
        Config { norm_topk_prob: false, ..config(224, 144, 30, 7) },
        config(2048, 768, 16, 8),
    ]
}

fn input(n_tokens: usize, hidden: usize, dtype: DType) -> Result<Tensor> {
    Tensor::randn(0f32, 1f32, (n_tokens, hidden), &Device::Cpu)?.to_dtype(dtype)
}

/// Both ways of calling libmoe against candle's block, with weights that candle holds as `candle_type`.
fn compare(config: Config, weights: DType, x_type: DType, candle_type: DType, bound: f32) -> Result<()> {
    let tensors = BlockWeights::random(&config, weights)?;
    let candle = CandleBlock::new(config, &tensors.to_dtype(candle_type)?);
    let libmoe = MoeBlock::new(config, &tensors, x_type, 64)?;
    for n_tokens in TOKENS {
        let x = input(n_tokens, config.hidden, x_type)?;
        let expected = candle.forward(&x.to_dtype(candle_type)?)?;
        for (way, found) in [("whole", libmoe.forward(&x)?), ("routed", libmoe.forward_routed(&x)?)] {
            let worst = worst_row(&expected, &found)?;
            assert!(worst <= bound, "{config:?}, T = {n_tokens}, {way}: {worst}");
        }
    }
    Ok(())
}

#[test]
fn f32_is_within_1e_5() -> Result<()> {
    shapes().into_iter().try_for_each(|one| compare(one, DType::F32, DType::F32, DType::F32, 1e-5))
}

/// Weights of 16 bits with f32 activations, which candle multiplies as f32: no rounding is between the two.
#[test]
fn bf16_and_f16_weights_are_within_1e_5() -> Result<()> {
    for weights in [DType::BF16, DType::F16] {
        compare(config(224, 144, 30, 7), weights, DType::F32, DType::F32, 1e-5)?;
        compare(config(2048, 768, 16, 8), weights, DType::F32, DType::F32, 1e-5)?;
    }
    Ok(())
}

/// In f16 candle rounds every intermediate. The routing is candle's on both sides: rounded scores have ties.
#[test]
fn f16_is_within_its_rounding() -> Result<()> {
    for config in shapes() {
        let tensors = BlockWeights::random(&config, DType::F16)?;
        let libmoe = MoeBlock::new(config, &tensors, DType::F16, 64)?;
        let candle = CandleBlock::new(config, &tensors);
        for n_tokens in TOKENS {
            let x = input(n_tokens, config.hidden, DType::F16)?;
            let worst = worst_row(&candle.forward(&x)?, &libmoe.forward_routed(&x)?)?;
            assert!(worst <= 6e-3, "{config:?}, T = {n_tokens}: {worst}");
        }
    }
    Ok(())
}

/// A part of a larger tensor is taken where it lies; rows with gaps are refused.
#[test]
fn views_are_seen() -> Result<()> {
    let config = config(96, 80, 13, 5);
    let tensors = BlockWeights::random(&config, DType::F32)?;
    let (candle, libmoe) =
        (CandleBlock::new(config, &tensors), MoeBlock::new(config, &tensors, DType::F32, 8)?);
    let all = input(9, config.hidden, DType::F32)?;
    let part = all.narrow(0, 4, 3)?;
    assert!(worst_row(&candle.forward(&part)?, &libmoe.forward(&part)?)? <= 1e-5);
    let gaps = input(3, 2 * config.hidden, DType::F32)?.narrow(1, 0, config.hidden)?;
    let error = libmoe.forward(&gaps).expect_err("rows with gaps").to_string();
    assert!(error.contains("contiguous"), "{error}");
    let error = libmoe.forward(&all).expect_err("more than max_tokens").to_string();
    assert!(error.contains("n_tokens"), "{error}");
    Ok(())
}

#[test]
fn the_experts_are_read_where_candle_has_them() -> Result<()> {
    let config = config(2048, 768, 4, 2);
    let tensors = BlockWeights::random(&config, DType::F32)?;
    let (borrowed, owned) = MoeBlock::new(config, &tensors, DType::F32, 1)?.op().memory()?;
    let experts = (4 * 3 * 2048 * 768 * 4) as u64;
    assert!(borrowed >= experts, "{borrowed} bytes borrowed of {experts}");
    assert!(owned < experts / 100, "{owned} bytes owned");
    Ok(())
}

/// The comparison sees outputs that are zero, another token's, and of other experts.
#[test]
fn wrong_outputs_are_seen() -> Result<()> {
    let config = config(96, 80, 13, 5);
    let tensors = BlockWeights::random(&config, DType::F32)?;
    let (candle, x) = (CandleBlock::new(config, &tensors), input(4, config.hidden, DType::F32)?);
    let expected = candle.forward(&x)?;
    assert_eq!(worst_row(&expected, &expected.zeros_like()?)?, 1.0);
    let turned = Tensor::cat(&[expected.narrow(0, 1, 3)?, expected.narrow(0, 0, 1)?], 0)?;
    assert!(worst_row(&expected, &turned)? > 0.1);
    let mut others = tensors;
    others.experts.rotate_left(1);
    let found = MoeBlock::new(config, &others, DType::F32, 4)?.forward(&x)?;
    assert!(worst_row(&expected, &found)? > 0.1);
    Ok(())
}

#[test]
fn ids_that_the_layer_does_not_have_are_an_error() -> Result<()> {
    let config = config(64, 48, 8, 2);
    let tensors = BlockWeights::random(&config, DType::F32)?;
    let libmoe = MoeBlock::new(config, &tensors, DType::F32, 4)?;
    let x = input(2, config.hidden, DType::F32)?;
    let (_, weights) = route(&config, &tensors.router, &x)?;
    let ids = Tensor::from_vec(vec![0i64, 1, 8, 2], (2, 2), &Device::Cpu)?;
    let error = x.apply_op3_no_bwd(&ids, &weights, libmoe.op()).expect_err("expert 8 of 8").to_string();
    assert!(error.contains("1 slots"), "{error}");
    Ok(())
}

/// candle-transformers' own Qwen3-MoE model, whose block is private: one layer with an attention that gives zeros, so that what is
/// left is norm(e + block(norm(e))).
#[test]
fn both_are_the_block_of_candle_transformers() -> Result<()> {
    const EPS: f64 = 1e-6;
    for config in [config(96, 80, 13, 5), Config { norm_topk_prob: false, ..config(160, 112, 6, 3) }] {
        let (n_tokens, hidden, device) = (23, config.hidden, Device::Cpu);
        let tensors = BlockWeights::random(&config, DType::F32)?;
        // Embeddings are small beside what the block adds: its errors are not hidden in them.
        let embeddings = (input(n_tokens, hidden, DType::F32)? * 0.01)?;
        let gain = Tensor::rand(0.5f32, 1.5f32, hidden, &device)?;
        let mut model = qwen3_moe::Model::new(&model_config(&config, n_tokens, EPS), {
            let named = model_tensors(&config, &tensors, &embeddings, &gain)?;
            candle_nn::VarBuilder::from_tensors(named, DType::F32, &device)
        })?;
        let tokens = Tensor::arange(0u32, n_tokens as u32, &device)?.unsqueeze(0)?;
        let expected = model.forward(&tokens, 0)?.squeeze(0)?;

        let x = candle_nn::ops::rms_norm(&embeddings, &gain, EPS as f32)?;
        let libmoe = MoeBlock::new(config, &tensors, DType::F32, n_tokens)?;
        for block in
            [CandleBlock::new(config, &tensors).forward(&x)?, libmoe.forward(&x)?, libmoe.forward_routed(&x)?]
        {
            assert!(
                block.sqr()?.sum_all()?.to_scalar::<f32>()?
                    > 100.0 * embeddings.sqr()?.sum_all()?.to_scalar::<f32>()?
            );
            let found = candle_nn::ops::rms_norm(&(&embeddings + block)?, &gain, EPS as f32)?;
            let worst = worst_row(&expected, &found)?;
            assert!(worst <= 1e-5, "{config:?}: {worst}");
        }
    }
    Ok(())
}

fn model_config(config: &Config, vocabulary: usize, eps: f64) -> qwen3_moe::Config {
    qwen3_moe::Config {
        vocab_size: vocabulary,
        hidden_size: config.hidden,
        intermediate_size: config.intermediate,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        head_dim: 32,
        attention_bias: false,
        num_key_value_heads: 1,
        max_position_embeddings: vocabulary,
        sliding_window: None,
        max_window_layers: 1,
        tie_word_embeddings: true,
        rope_theta: 10000.0,
        rms_norm_eps: eps,
        use_sliding_window: false,
        hidden_act: candle_nn::Activation::Silu,
        decoder_sparse_step: 1,
        moe_intermediate_size: config.intermediate,
        num_experts_per_tok: config.top_k,
        num_experts: config.n_experts,
        norm_topk_prob: config.norm_topk_prob,
    }
}

fn model_tensors(
    config: &Config,
    weights: &BlockWeights,
    embeddings: &Tensor,
    gain: &Tensor,
) -> Result<HashMap<String, Tensor>> {
    let zeros = |rows: usize, columns: usize| Tensor::zeros((rows, columns), DType::F32, &Device::Cpu);
    let ones = Tensor::ones(32, DType::F32, &Device::Cpu)?;
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let mut named = HashMap::from([
        ("model.embed_tokens.weight".to_string(), embeddings.clone()),
        ("model.norm.weight".to_string(), gain.clone()),
        (layer("input_layernorm"), gain.clone()),
        (layer("post_attention_layernorm"), gain.clone()),
        (layer("self_attn.q_norm"), ones.clone()),
        (layer("self_attn.k_norm"), ones),
        (layer("self_attn.o_proj"), zeros(config.hidden, 32)?),
        (layer("mlp.gate"), weights.router.clone()),
    ]);
    for projection in ["q_proj", "k_proj", "v_proj"] {
        named.insert(layer(&format!("self_attn.{projection}")), zeros(32, config.hidden)?);
    }
    for (i, expert) in weights.experts.iter().enumerate() {
        let matrices = [("gate_proj", &expert.gate), ("up_proj", &expert.up), ("down_proj", &expert.down)];
        for (projection, matrix) in matrices {
            named.insert(layer(&format!("mlp.experts.{i}.{projection}")), matrix.clone());
        }
    }
    Ok(named)
}
