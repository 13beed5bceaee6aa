//! A plan, its weights and workspaces in one object.
use std::path::Path;
use std::sync::Mutex;

use crate::calls::Forward;
use crate::checkpoint::Checkpoint;
use crate::enums::{DeviceKind, Type};
use crate::error::{refuse, Result};
use crate::plan::{Plan, PlanOptions};
use crate::weights::{Load, Weights};
use crate::workspace::Workspace;

const MAX_TOKENS: i64 = 512;

/// One MoE layer of a checkpoint, f32 in and out of host memory, for any number of threads. For other types and devices
/// there are [`Plan`], [`Weights`] and [`Forward`]. It routes by itself and takes no ids, so no call leaves out slots of ids that the
/// layer does not have.
#[derive(Debug)]
pub struct Layer {
    plan: Plan,
    weights: Weights<'static>,
    idle: Mutex<Vec<Workspace<'static>>>,
}

impl Layer {
    /// The first MoE layer; the matrices are read where the file is mapped. device is `CPU`.
    pub fn open(path: impl AsRef<Path>, device: DeviceKind) -> Result<Layer> {
        let checkpoint = Checkpoint::open(path)?;
        let first = checkpoint.layers()?.first().copied();
        let layer = first.map_or_else(|| refuse("path", "the checkpoint has no MoE layer"), Ok)?;
        Layer::of(&checkpoint, layer, PlanOptions::new(Type::F32, MAX_TOKENS).device(device))
    }

    /// Decoder layer `layer`, with options of x and out in f32.
    pub fn of(checkpoint: &Checkpoint, layer: i32, options: PlanOptions<'_>) -> Result<Layer> {
        let plan = options.checkpoint(checkpoint, layer).create()?;
        if plan.device_kind() != DeviceKind::CPU || plan.x_type() != Type::F32 || plan.out_type() != Type::F32
        {
            return refuse("options", "a Layer has f32 x and out in host memory, on the CPU");
        }
        let weights = Load::new().borrowed_checkpoint(&plan, checkpoint, layer)?;
        Ok(Layer { plan, weights, idle: Mutex::new(Vec::new()) })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn weights(&self) -> &Weights<'static> {
        &self.weights
    }

    pub fn hidden(&self) -> usize {
        self.plan.shape().hidden
    }

    /// x `[T, hidden]` -> `[T, hidden]`.
    pub fn forward(&self, x: &[f32]) -> Result<Vec<f32>> {
        let n_tokens = x.len() / self.hidden();
        let mut out = vec![0.0f32; n_tokens * self.plan.shape().out_width];
        let idle = self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        let mut workspace = idle.map_or_else(|| Workspace::new(&self.plan), Ok)?;
        let result = Forward::new(n_tokens).x(x).out(&mut out).run(&self.plan, &self.weights, &mut workspace);
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(workspace);
        result.map(|()| out)
    }
}
