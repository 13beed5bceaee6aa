//! libmoe from Rust: the Mixture-of-Experts layer of a language model.
//!
//! ```no_run
//! let layer = moe::Layer::open("/tmp/qwen3", moe::DeviceKind::CPU)?; // the first MoE layer: plan, weights, a workspace
//! let out = layer.forward(&vec![1.0; 4 * layer.hidden()])?;
//! println!("{} values by {}", out.len(), layer.plan().kernel(moe::Stage::EXPERTS, 4)?);
//! # Ok::<(), moe::Error>(())
//! ```
//!
//! The way through is that of `moe.h`: a [`Checkpoint`], a [`Plan`] for one of its layers, [`Weights`], a [`Workspace`],
//! then [`Forward`] or the stages one by one. Handles end when they are dropped, in any order. `Runtime`, `Checkpoint`,
//! `Plan` and `Weights` are `Send` and `Sync`; a `Workspace` is `Send` alone, and calls borrow it mutably.
//!
//! Slices go in and out where they lie, with their lengths checked; device memory goes in through `unsafe` functions.
//! The library's ABI version is compared before anything else of it is called.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::all)]

mod calls;
mod checkpoint;
mod device;
mod enums;
mod error;
mod hooks;
mod layer;
mod plan;
mod runtime;
mod simple;
mod stages;
mod tensor;
mod views;
mod weights;
mod workspace;

pub use calls::Forward;
pub use checkpoint::{Checkpoint, CheckpointInfo, CheckpointOptions};
pub use device::{DeviceMemory, Stream};
pub use enums::*;
#[cfg(feature = "dlopen")]
pub use error::load;
pub use error::{abi_version, build_info, version, version_string, Error, Result};
pub use hooks::{Allocator, Task};
pub use layer::{families, formats, Format, FormatInfo, FormatSize, LayerDesc, Slice};
pub use plan::{Candidate, Plan, PlanDevice, PlanOptions, Shape, WorkspaceNeed};
pub use runtime::{device_count, device_info, DeviceInfo, Runtime, RuntimeBuilder};
pub use simple::Layer;
pub use stages::{Combine, Dispatch, Experts, Finish, Gather, Route};
pub use tensor::{convert_scales, dequantize, quantize, scale_layout_size, Quantized, Tensor};
pub use views::{Bf16, Element, In, Out, F16};
pub use weights::{Load, Loading, LoadingProgress, MemoryReport, Weights};
pub use workspace::{Faults, Workspace, WorkspaceOptions};

/// The structs and functions as they are, for what the types here do not reach.
pub use moe_sys as sys;
