//! libmoe as an operation of candle. With one argument, x, it is the whole layer; with three, x, ids and weights, all but the router.
use std::sync::{Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp1, CustomOp3, DType, Error, Layout, Result, Shape, Storage, Tensor};
use moe::{Bf16, DeviceKind, Element, Format, Forward, Load, Plan, Residency, Role, Type, Workspace, F16};

use crate::{BlockWeights, Config};

pub struct MoeOp {
    plan: Plan,
    weights: moe::Weights<'static>, // borrows the memory of `tensors`, and is dropped before them
    idle: Mutex<Vec<Workspace<'static>>>,
    _tensors: BlockWeights,
}

/// Routing from outside: ids and weights of every slot.
type Routing<'a> = Option<(&'a [i64], &'a [f32])>;

impl MoeOp {
    /// The tensors are dense and on the CPU, and of one type for each role: f32, f16 or bf16. They are not variables that a training
    /// changes.
    pub fn new(config: &Config, weights: &BlockWeights, x_type: DType, max_tokens: usize) -> Result<MoeOp> {
        let runtime = moe::Runtime::builder().n_threads(candle_core::utils::get_num_threads() as i32);
        let runtime = runtime.create().map_err(Error::wrap)?;
        let of = |matrix: &Tensor| named(matrix.dtype());
        let first = weights.experts.first().ok_or_else(|| Error::msg("a block without experts"))?;
        let plan = Plan::options(type_of(x_type)?, max_tokens as i64)
            .runtime(&runtime)
            .device(DeviceKind::CPU)
            .residency(Residency::SOURCE)
            .layer(layer_of(config))
            .format(Role::ROUTER, of(&weights.router)?)
            .format(Role::GATE, of(&first.gate)?)
            .format(Role::UP, of(&first.up)?)
            .format(Role::DOWN, of(&first.down)?)
            .create()
            .map_err(Error::wrap)?;
        let tensors = weights.clone();
        // SAFETY: the tensors that own this memory lie beside the weights which borrow it.
        let borrowed = unsafe { tensors_of(config, &tensors)? };
        let weights = Load::new().borrowed(&plan, &borrowed).map_err(Error::wrap)?;
        Ok(MoeOp { plan, weights, idle: Mutex::new(Vec::new()), _tensors: tensors })
    }

    /// Bytes of the weights that are read where candle has them, and bytes that libmoe owns beside them.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let report = self.weights.memory().map_err(Error::wrap)?;
        Ok((report.borrowed_bytes, report.host_bytes))
    }

    /// The kernel of the experts for so many tokens.
    pub fn kernel(&self, n_tokens: usize) -> Result<&'static str> {
        self.plan.kernel(moe::Stage::EXPERTS, n_tokens as i64).map_err(Error::wrap)
    }

    fn run(&self, x: &CpuStorage, layout: &Layout, routing: Routing<'_>) -> Result<(CpuStorage, Shape)> {
        let (n_tokens, hidden) = layout.shape().dims2()?;
        let part = part_of(layout)?;
        let out = match x {
            CpuStorage::F32(x) => {
                let mut out = vec![0f32; n_tokens * hidden];
                self.call(n_tokens, &x[part], &mut out, routing)?;
                CpuStorage::F32(out)
            }
            CpuStorage::F16(x) => {
                let mut out = vec![half::f16::ZERO; n_tokens * hidden];
                self.call(n_tokens, bits::<_, F16>(&x[part]), bits_mut::<_, F16>(&mut out), routing)?;
                CpuStorage::F16(out)
            }
            CpuStorage::BF16(x) => {
                let mut out = vec![half::bf16::ZERO; n_tokens * hidden];
                self.call(n_tokens, bits::<_, Bf16>(&x[part]), bits_mut::<_, Bf16>(&mut out), routing)?;
                CpuStorage::BF16(out)
            }
            _ => candle_core::bail!("x must be f32, f16 or bf16"),
        };
        Ok((out, layout.shape().clone()))
    }

    fn call<T: Element>(&self, n_tokens: usize, x: &[T], out: &mut [T], routing: Routing<'_>) -> Result<()> {
        let mut call = Forward::new(n_tokens).x(x).out(out);
        if let Some((ids, weights)) = routing {
            call = call.ids(ids).weights(weights);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut workspace = idle.map_or_else(|| Workspace::new(&self.plan), Ok).map_err(Error::wrap)?;
        let result = call.run(&self.plan, &self.weights, &mut workspace);
        let skipped = workspace.status().map_err(Error::wrap)?.n_skipped;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
        if skipped != 0 {
            candle_core::bail!("{skipped} slots have ids that the layer does not have");
        }
        result.map_err(Error::wrap)
    }
}

impl CustomOp1 for MoeOp {
    fn name(&self) -> &'static str {
        "libmoe-layer"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run(x, layout, None)
    }
}

impl CustomOp3 for MoeOp {
    fn name(&self) -> &'static str {
        "libmoe-experts"
    }

    /// ids are i64 and weights f32, `[T, top_k]`.
    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        ids: &CpuStorage,
        ids_layout: &Layout,
        weights: &CpuStorage,
        weights_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        match (ids, weights) {
            (CpuStorage::I64(ids), CpuStorage::F32(weights)) => {
                let routing = (&ids[part_of(ids_layout)?], &weights[part_of(weights_layout)?]);
                self.run(x, x_layout, Some(routing))
            }
            _ => candle_core::bail!("ids must be i64 and weights f32"),
        }
    }
}

fn layer_of(config: &Config) -> moe::LayerDesc {
    moe::LayerDesc {
        hidden: config.hidden as i32,
        intermediate: config.intermediate as i32,
        n_experts: config.n_experts as i32,
        top_k: config.top_k as i32,
        has_router: true,
        score: moe::Score::SOFTMAX,
        renormalize: match config.norm_topk_prob {
            true => moe::Renormalize::SUM_ADD,
            false => moe::Renormalize::NONE,
        },
        activation: moe::Activation::SILU,
        is_gated: true,
        ..Default::default()
    }
}

/// # Safety
/// The memory of the tensors must stay as long as what is made with these.
unsafe fn tensors_of(config: &Config, weights: &BlockWeights) -> Result<Vec<moe::Tensor<'static>>> {
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let n_experts = config.n_experts;
    if weights.experts.len() != n_experts {
        candle_core::bail!("{} experts, the configuration has {n_experts}", weights.experts.len());
    }
    let stack = |role, matrix: fn(&crate::Expert) -> &Tensor, rows: usize, columns: usize| {
        let matrices: Vec<&Tensor> = weights.experts.iter().map(matrix).collect();
        let format = named(matrices[0].dtype())?;
        let bytes = |one: &&Tensor| unsafe { bytes_of(one, matrices[0].dtype(), rows, columns) };
        let bytes: Vec<&'static [u8]> = matrices.iter().map(bytes).collect::<Result<_>>()?;
        moe::Tensor::per_expert(role, &format, rows as i64, columns as i64, &bytes).map_err(Error::wrap)
    };
    let router_bytes = unsafe { bytes_of(&weights.router, weights.router.dtype(), n_experts, hidden)? };
    let router_format = named(weights.router.dtype())?;
    Ok(vec![
        moe::Tensor::new(Role::ROUTER, &router_format, n_experts as i64, hidden as i64, router_bytes),
        stack(Role::GATE, |one| &one.gate, intermediate, hidden)?,
        stack(Role::UP, |one| &one.up, intermediate, hidden)?,
        stack(Role::DOWN, |one| &one.down, hidden, intermediate)?,
    ])
}

/// A matrix where candle has it.
///
/// # Safety
/// The tensor, or a clone of it, must stay as long as the bytes are used, and nothing may write to it.
unsafe fn bytes_of(matrix: &Tensor, dtype: DType, rows: usize, columns: usize) -> Result<&'static [u8]> {
    if matrix.dtype() != dtype || matrix.dims() != [rows, columns] {
        candle_core::bail!(
            "a matrix is {:?} {:?}, expected {dtype:?} [{rows}, {columns}]",
            matrix.dtype(),
            matrix.dims()
        );
    }
    let (storage, layout) = matrix.storage_and_layout();
    let part = part_of(layout)?;
    let Storage::Cpu(storage) = &*storage else { candle_core::bail!("a matrix is not on the CPU") };
    let found: &[u8] = match storage {
        CpuStorage::F32(values) => bits(&values[part]),
        CpuStorage::F16(values) => bits(&values[part]),
        CpuStorage::BF16(values) => bits(&values[part]),
        _ => candle_core::bail!("a matrix is {dtype:?}: f32, f16 or bf16"),
    };
    Ok(unsafe { std::slice::from_raw_parts(found.as_ptr(), found.len()) })
}

fn part_of(layout: &Layout) -> Result<std::ops::Range<usize>> {
    let offsets = layout.contiguous_offsets();
    offsets.map(|(begin, end)| begin..end).ok_or_else(|| Error::msg("rows must be contiguous"))
}

fn type_of(dtype: DType) -> Result<Type> {
    match dtype {
        DType::F32 => Ok(Type::F32),
        DType::F16 => Ok(Type::F16),
        DType::BF16 => Ok(Type::BF16),
        other => candle_core::bail!("{other:?}: f32, f16 or bf16"),
    }
}

fn named(dtype: DType) -> Result<Format> {
    Ok(Format { kind: type_of(dtype)?, ..Format::default() })
}

/// Elements of the same bits under another name: the 16-bit types of `half` as those of `moe`, or plain bytes.
fn bits<T: Copy, U: Element>(values: &[T]) -> &[U] {
    let n = std::mem::size_of_val(values) / std::mem::size_of::<U>();
    assert!(std::mem::align_of::<T>() >= std::mem::align_of::<U>());
    // SAFETY: the same memory, whose alignment is enough; any bits are values of both.
    unsafe { std::slice::from_raw_parts(values.as_ptr() as *const U, n) }
}

fn bits_mut<T: Copy, U: Element>(values: &mut [T]) -> &mut [U] {
    let n = std::mem::size_of_val(values) / std::mem::size_of::<U>();
    assert!(std::mem::align_of::<T>() >= std::mem::align_of::<U>());
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr() as *mut U, n) }
}
