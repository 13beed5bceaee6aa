//! Checkpoints: what a folder of safetensors or a GGUF file says of its MoE layers.
use moe_sys as sys;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::enums::{GateUpOrder, Io, Orientation, Role, Status, Type};
use crate::error::{array_text, c_path, c_string, call, sized, Result};
use crate::hooks::Hooks;
use crate::layer::{Format, LayerDesc};
use crate::runtime::{handle, made, raw_of, Runtime};
use crate::tensor::Tensor;

/// Opened headers of a model.
pub struct Checkpoint {
    raw: NonNull<sys::moe_checkpoint>,
    hooks: Option<Arc<Hooks>>,
}

handle!(Checkpoint, moe_checkpoint, moe_checkpoint_destroy);
// SAFETY: moe.h: any number of threads at once.
unsafe impl Sync for Checkpoint {}

/// `moe_checkpoint_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    pub family: String,
    pub model_type: String,
    pub n_layers: i32,
    pub n_files: i32,
    pub n_tensors: u64,
    pub file_bytes: u64,
    pub is_gguf: bool,
}

/// How a checkpoint is opened; everything has a default.
#[derive(Clone, Copy, Default)]
#[must_use]
pub struct CheckpointOptions<'a> {
    runtime: Option<&'a Runtime>,
    io: Io,
    family: Option<&'a str>,
    orientation: Option<Orientation>,
    gate_up_order: GateUpOrder,
    overrides: Option<&'a str>,
}

impl<'a> CheckpointOptions<'a> {
    pub fn runtime(mut self, runtime: &'a Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// `MMAP` maps the files, `READ` reads tensors on request.
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// One of [`crate::families`] in place of what the config says.
    pub fn family(mut self, family: &'a str) -> Self {
        self.family = Some(family);
        self
    }

    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.orientation = Some(orientation);
        self
    }

    pub fn gate_up_order(mut self, order: GateUpOrder) -> Self {
        self.gate_up_order = order;
        self
    }

    /// Fields of [`crate::LayerDesc`] in place of what the files say: `"top_k=4, gate_limit=none"`.
    pub fn overrides(mut self, overrides: &'a str) -> Self {
        self.overrides = Some(overrides);
        self
    }

    pub fn open(self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let overrides = self.overrides.map(|text| c_string("overrides", text)).transpose()?;
        let family = self.family.map(|family| c_string("family", family)).transpose()?;
        let mut options = sized!(moe_checkpoint_options);
        options.io = self.io.into();
        options.family = family.as_ref().map_or(null(), |family| family.as_ptr());
        options.overrides = overrides.as_ref().map_or(null(), |text| text.as_ptr());
        options.has_orientation = self.orientation.is_some() as i32;
        options.orientation = self.orientation.unwrap_or_default().into();
        options.gate_up_order = self.gate_up_order.into();
        let path = c_path("path", path.as_ref())?;
        let mut raw = null_mut();
        call!(moe_checkpoint_open(raw_of(self.runtime), path.as_ptr(), &options, &mut raw))?;
        Ok(Checkpoint { raw: made(raw), hooks: self.runtime.map(Runtime::hooks) })
    }
}

impl Checkpoint {
    /// A folder of safetensors with its config.json, or a GGUF file. While files are mapped nobody may cut them short.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::options().open(path)
    }

    pub fn options<'a>() -> CheckpointOptions<'a> {
        CheckpointOptions::default()
    }

    pub(crate) fn hooks(&self) -> Option<Arc<Hooks>> {
        self.hooks.clone()
    }

    pub fn info(&self) -> Result<CheckpointInfo> {
        let mut raw = sized!(moe_checkpoint_info);
        call!(moe_checkpoint_get_info(self.as_raw(), &mut raw))?;
        Ok(CheckpointInfo {
            family: array_text(&raw.family),
            model_type: array_text(&raw.model_type),
            n_layers: raw.n_layers,
            n_files: raw.n_files,
            n_tensors: raw.n_tensors,
            file_bytes: raw.file_bytes,
            is_gguf: raw.is_gguf != 0,
        })
    }

    /// The decoder layers (the numbers in the tensor names) that are MoE layers, ascending.
    pub fn layers(&self) -> Result<Vec<i32>> {
        (0..self.info()?.n_layers).map(|index| self.layer_at(index)).collect()
    }

    fn layer_at(&self, index: i32) -> Result<i32> {
        let mut layer = 0;
        call!(moe_checkpoint_layer_at(self.as_raw(), index, &mut layer))?;
        Ok(layer)
    }

    /// Change any field before planning: files leave things out.
    pub fn layer(&self, layer: i32) -> Result<LayerDesc> {
        let mut raw = sized!(moe_layer_desc);
        call!(moe_checkpoint_layer(self.as_raw(), layer, &mut raw))?;
        Ok(LayerDesc::from_c(&raw))
    }

    /// The format of every role that the layer has.
    pub fn formats(&self, layer: i32) -> Result<Vec<(Role, Format)>> {
        let mut found = [sized!(moe_format); sys::MOE_ROLE_COUNT as usize];
        let pointers: Vec<*mut sys::moe_format> = found.iter_mut().map(|one| one as *mut _).collect();
        call!(moe_checkpoint_formats(self.as_raw(), layer, pointers.as_ptr(), pointers.len() as u32))?;
        let all = found.iter().enumerate().map(|(role, raw)| (Role(role as u32), Format::from_c(raw)));
        Ok(all.filter(|(_, format)| format.kind != Type::NONE).collect())
    }

    /// The index-th tensor of a layer where the file is mapped; `NOT_FOUND` past the end.
    pub fn tensor(&self, layer: i32, index: u32) -> Result<Tensor<'_>> {
        let (mut raw, mut format) = (sized!(moe_tensor), sized!(moe_format));
        call!(moe_checkpoint_tensor(self.as_raw(), layer, index, &mut raw, &mut format))?;
        // SAFETY: what it points to is valid while the checkpoint lives, which the result borrows.
        Ok(unsafe { Tensor::from_raw(raw, format) })
    }

    pub fn tensors(&self, layer: i32) -> Result<Vec<Tensor<'_>>> {
        self.layer(layer)?; // that there is such a layer
        let mut found = Vec::new();
        loop {
            match self.tensor(layer, found.len() as u32) {
                Ok(tensor) => found.push(tensor),
                Err(error) if error.status() == Some(Status::NOT_FOUND) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
    }
}
