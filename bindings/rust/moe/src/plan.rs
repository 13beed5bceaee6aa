//! Plans: every decision about a layer, made once; immutable, for any number of threads.
use moe_sys as sys;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::enums::*;
use crate::error::{c_string, call, refuse, sized, text, Result};
use crate::hooks::Hooks;
use crate::layer::{Format, LayerDesc, Slice};
use crate::runtime::{handle, made, raw_of, Runtime};

/// What a plan is requested for. `x_type` and `max_tokens` are required, and either a layer with its formats or a checkpoint;
/// what is left out is the library's choice.
#[derive(Clone)]
#[must_use]
pub struct PlanOptions<'a> {
    runtime: Option<&'a Runtime>,
    checkpoint: Option<(&'a Checkpoint, i32)>,
    layer: Option<LayerDesc>,
    formats: BTreeMap<u32, Format>,
    slice: Option<Slice>,
    kernel_filter: Option<String>,
    tuning_path: Option<String>,
    desc: sys::moe_plan_desc, // without pointers
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, value: $kind) -> Self {
            self.desc.$name = value.into();
            self
        }
    )*};
}

impl<'a> PlanOptions<'a> {
    /// x of f32, f16 or bf16; calls of up to `max_tokens` tokens.
    pub fn new(x_type: Type, max_tokens: i64) -> PlanOptions<'a> {
        let mut desc = sized!(moe_plan_desc);
        (desc.x_type, desc.max_tokens) = (x_type.into(), max_tokens);
        PlanOptions {
            runtime: None,
            checkpoint: None,
            layer: None,
            formats: BTreeMap::new(),
            slice: None,
            kernel_filter: None,
            tuning_path: None,
            desc,
        }
    }

    setters! {
        /// `AUTO` may choose CUDA, whose calls take device memory: programs with slices ask for `CPU`.
        device: DeviceKind,
        device_index: i32,
        router_input_type: Type,
        out_type: Type,
        intermediate_type: Type,
        max_workspace_bytes: u64,
        residency: Residency,
        activation_quantization: ActivationQuantization,
        /// A token's result never depends on the other tokens of the call.
        batch_invariant: bool,
        /// Every stage apart, for study.
        unfused: bool,
        /// The routed sum of the slice and nothing else; [`crate::Finish`] adds the rest.
        partial: bool,
    }

    /// The stages that the plan will be used for; all unless given.
    pub fn stages(mut self, stages: Stage) -> Self {
        self.desc.stages = stages.0;
        self
    }

    pub fn runtime(mut self, runtime: &'a Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Where layer and formats come from unless they are given.
    pub fn checkpoint(mut self, checkpoint: &'a Checkpoint, layer: i32) -> Self {
        self.checkpoint = Some((checkpoint, layer));
        self
    }

    pub fn layer(mut self, layer: LayerDesc) -> Self {
        self.layer = Some(layer);
        self
    }

    /// Of one role; required for every matrix once one is given.
    pub fn format(mut self, role: Role, format: Format) -> Self {
        self.formats.insert(role.0, format);
        self
    }

    pub fn slice(mut self, slice: Slice) -> Self {
        self.slice = Some(slice);
        self
    }

    /// "name" or "+name" forces a kernel, "-name" forbids it; names are separated by commas.
    pub fn kernel_filter(mut self, filter: impl Into<String>) -> Self {
        self.kernel_filter = Some(filter.into());
        self
    }

    pub fn tuning_path(mut self, path: impl Into<String>) -> Self {
        self.tuning_path = Some(path.into());
        self
    }

    fn with_c<R>(
        &self,
        use_it: impl FnOnce(*mut sys::moe_runtime, *const sys::moe_plan_desc) -> Result<R>,
    ) -> Result<R> {
        let mut desc = self.desc;
        if let Some((checkpoint, layer)) = self.checkpoint {
            (desc.checkpoint, desc.checkpoint_layer) = (checkpoint.as_raw(), layer);
        }
        let layer = self.layer.map(LayerDesc::to_c);
        desc.layer = layer.as_ref().map_or(null(), |layer| layer as *const _);
        let slice = self.slice.as_ref().map(Slice::to_c);
        desc.slice = slice.as_ref().map_or(null(), |slice| slice as *const _);
        let formats = self.formats_to_c()?;
        let pointers: Vec<*const sys::moe_format> =
            formats.iter().map(|one| one.as_ref().map_or(null(), |format| format as *const _)).collect();
        if !pointers.is_empty() {
            (desc.formats, desc.n_formats) = (pointers.as_ptr(), pointers.len() as u32);
        }
        let filter = optional("kernel_filter", &self.kernel_filter)?;
        let tuning = optional("tuning_path", &self.tuning_path)?;
        desc.kernel_filter = filter.as_ref().map_or(null(), |text| text.as_ptr());
        desc.tuning_path = tuning.as_ref().map_or(null(), |text| text.as_ptr());
        use_it(raw_of(self.runtime), &desc)
    }

    fn formats_to_c(&self) -> Result<Vec<Option<sys::moe_format>>> {
        let largest = match self.formats.keys().next_back() {
            None => return Ok(Vec::new()),
            Some(&role) if role >= 1 << 16 => {
                return refuse("formats", format!("{:?} is no role", Role(role)))
            }
            Some(&role) => role,
        };
        let count = sys::MOE_ROLE_COUNT.max(largest + 1);
        Ok((0..count).map(|role| self.formats.get(&role).map(|format| format.to_c())).collect())
    }

    pub fn create(&self) -> Result<Plan> {
        let mut raw = null_mut();
        self.with_c(|runtime, desc| call!(moe_plan_create(runtime, desc, &mut raw)))?;
        let hooks = self.runtime.map(Runtime::hooks);
        let mut plan = Plan {
            raw: made(raw),
            hooks,
            shape: Shape::default(),
            types: [Type::NONE; 3],
            device: DeviceKind::CPU,
        };
        plan.device = plan.device()?.kind;
        plan.shape = self.shape()?;
        plan.types = self.types();
        Ok(plan)
    }

    /// The error that [`PlanOptions::create`] would give; makes nothing.
    pub fn supports(&self) -> Result<()> {
        self.with_c(|runtime, desc| call!(moe_supports(runtime, desc)))
    }

    /// Equal keys mean equal plans, so that layers may share one.
    pub fn key(&self) -> Result<[u8; 16]> {
        let mut key = [0; 16];
        self.with_c(|runtime, desc| call!(moe_plan_key(runtime, desc, key.as_mut_ptr())))?;
        Ok(key)
    }

    // Of options that made a plan: their numbers are in range.
    fn shape(&self) -> Result<Shape> {
        let layer = match (&self.layer, self.checkpoint) {
            (Some(layer), _) => *layer,
            (None, Some((checkpoint, layer))) => checkpoint.layer(layer)?,
            (None, None) => return refuse("layer", "neither a layer nor a checkpoint is given"),
        };
        let whole = Slice::default();
        let slice = self.slice.as_ref().unwrap_or(&whole);
        let hidden = layer.hidden as usize;
        let latent = if layer.latent == 0 { hidden } else { layer.latent as usize };
        Ok(Shape {
            hidden,
            latent,
            top_k: layer.top_k as usize,
            n_experts: layer.n_experts as usize,
            n_all_experts: (layer.n_experts + layer.n_identity_experts) as usize,
            n_local_experts: slice.n_local_experts(layer.n_experts as usize),
            n_features: slice.n_features(layer.intermediate as usize) * if layer.is_gated { 2 } else { 1 },
            out_width: if self.desc.partial != 0 { latent } else { hidden },
        })
    }

    fn types(&self) -> [Type; 3] {
        let x: Type = self.desc.x_type.into();
        let or_x = |given: sys::moe_type| if Type::from(given) == Type::NONE { x } else { given.into() };
        [x, or_x(self.desc.router_input_type), or_x(self.desc.out_type)]
    }
}

fn optional(name: &'static str, text: &Option<String>) -> Result<Option<CString>> {
    text.as_ref().map(|text| c_string(name, text)).transpose()
}

/// The sizes that the memory of a plan's calls has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub hidden: usize,
    /// `hidden` where the layer has no latent.
    pub latent: usize,
    pub top_k: usize,
    pub n_experts: usize,
    /// With identity experts.
    pub n_all_experts: usize,
    pub n_local_experts: usize,
    /// Of the slice before the activation: gate and up, or up alone.
    pub n_features: usize,
    /// Of a reduced output.
    pub out_width: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanDevice {
    pub kind: DeviceKind,
    pub index: i32,
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceNeed {
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub alignment: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub stage: Stage,
    pub kernel: &'static str,
    pub chosen: bool,
    pub applicable: bool,
    pub reason_code: &'static str,
    pub reason: &'static str,
}

/// Made by [`PlanOptions::create`].
pub struct Plan {
    raw: NonNull<sys::moe_plan>,
    hooks: Option<Arc<Hooks>>,
    shape: Shape,
    types: [Type; 3],
    device: DeviceKind,
}

handle!(Plan, moe_plan, moe_plan_destroy);
// SAFETY: moe.h: any number of threads at once.
unsafe impl Sync for Plan {}

impl Plan {
    pub fn options<'a>(x_type: Type, max_tokens: i64) -> PlanOptions<'a> {
        PlanOptions::new(x_type, max_tokens)
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    pub fn x_type(&self) -> Type {
        self.types[0]
    }

    pub fn router_input_type(&self) -> Type {
        self.types[1]
    }

    pub fn out_type(&self) -> Type {
        self.types[2]
    }

    pub(crate) fn device_kind(&self) -> DeviceKind {
        self.device
    }

    pub(crate) fn hooks(&self) -> Option<Arc<Hooks>> {
        self.hooks.clone()
    }

    /// Weights with the same id go with this plan.
    pub fn layout_id(&self) -> Result<[u8; 16]> {
        let mut id = [0; 16];
        call!(moe_plan_layout_id(self.as_raw(), id.as_mut_ptr()))?;
        Ok(id)
    }

    /// The device chosen, and why.
    pub fn device(&self) -> Result<PlanDevice> {
        let (mut kind, mut index, mut reason) = (DeviceKind::AUTO.into(), 0, null::<c_char>());
        call!(moe_plan_device(self.as_raw(), &mut kind, &mut index, &mut reason))?;
        // SAFETY: a static string or NULL; likewise below.
        Ok(PlanDevice { kind: kind.into(), index, reason: unsafe { text(reason) } })
    }

    pub fn workspace_need(&self, n_tokens: i64) -> Result<WorkspaceNeed> {
        let mut raw = sized!(moe_workspace_need);
        call!(moe_plan_workspace_size(self.as_raw(), n_tokens, &mut raw))?;
        Ok(WorkspaceNeed {
            device_bytes: raw.device_bytes,
            host_bytes: raw.host_bytes,
            alignment: raw.alignment,
        })
    }

    /// The kernel that runs a stage for `n_tokens` tokens.
    pub fn kernel(&self, stage: Stage, n_tokens: i64) -> Result<&'static str> {
        let mut name = null::<c_char>();
        call!(moe_plan_kernel(self.as_raw(), sys::moe_stage(stage.0), n_tokens, &mut name))?;
        Ok(unsafe { text(name) })
    }

    /// Best first within a stage, stages in order.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let mut found = Vec::new();
        loop {
            let mut raw = sized!(moe_candidate);
            match call!(moe_candidates(self.as_raw(), found.len() as u32, &mut raw)) {
                Err(error) if error.status() == Some(Status::NOT_FOUND) => return Ok(found),
                other => other?,
            }
            found.push(Candidate {
                stage: raw.stage.into(),
                chosen: raw.chosen != 0,
                applicable: raw.applicable != 0,
                kernel: unsafe { text(raw.kernel) },
                reason_code: unsafe { text(raw.reason_code) },
                reason: unsafe { text(raw.reason) },
            });
        }
    }

    /// As text, or as JSON (docs/explain.schema.json).
    pub fn explain(&self, form: ExplainForm) -> Result<String> {
        let mut size = 0;
        call!(moe_plan_explain(self.as_raw(), form.into(), null_mut(), 0, &mut size))?;
        let mut buffer = vec![0u8; size as usize];
        call!(moe_plan_explain(
            self.as_raw(),
            form.into(),
            buffer.as_mut_ptr() as *mut c_char,
            size,
            &mut size
        ))?;
        buffer.truncate(buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len()));
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }
}
