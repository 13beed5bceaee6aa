//! Workspaces: scratch of one thread or stream.
use moe_sys as sys;
use std::cell::Cell;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

use crate::enums::{DeviceKind, Fault};
use crate::error::{call, sized, Result};
use crate::hooks::Hooks;
use crate::plan::Plan;
use crate::runtime::{handle, made, raw_of, Runtime};

/// Scratch of one thread or stream, for any plan of its device whose need fits. Calls borrow it mutably; it can be sent to
/// another thread, and not be shared with one:
///
/// ```
/// fn needs<T: Send>() {}
/// needs::<moe::Workspace<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs<T: Sync>() {}
/// needs::<moe::Workspace<'static>>();
/// ```
pub struct Workspace<'m> {
    raw: NonNull<sys::moe_workspace>,
    _hooks: Option<Arc<Hooks>>,
    memory: PhantomData<(&'m mut [u8], Cell<()>)>, // Cell: not Sync
}

handle!(Workspace<'m>, moe_workspace, moe_workspace_destroy);

/// What a workspace is made of.
#[must_use]
pub struct WorkspaceOptions<'m, 'a> {
    desc: sys::moe_workspace_desc,
    runtime: Option<&'a Runtime>,
    life: PhantomData<(&'m mut [u8], &'a Plan)>,
}

impl Default for WorkspaceOptions<'_, '_> {
    fn default() -> Self {
        WorkspaceOptions { desc: sized!(moe_workspace_desc), runtime: None, life: PhantomData }
    }
}

impl<'m, 'a> WorkspaceOptions<'m, 'a> {
    /// Sizes that are not given are what this plan needs at its `max_tokens`.
    pub fn plan(mut self, plan: &'a Plan) -> Self {
        self.desc.plan = plan.as_raw();
        self
    }

    pub fn runtime(mut self, runtime: &'a Runtime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// That of the plan unless given, or the CPU without one.
    pub fn device(mut self, kind: DeviceKind, index: i32) -> Self {
        (self.desc.device, self.desc.device_index) = (kind.into(), index);
        self
    }

    pub fn host_bytes(mut self, bytes: u64) -> Self {
        self.desc.host_bytes = bytes;
        self
    }

    pub fn device_bytes(mut self, bytes: u64) -> Self {
        self.desc.device_bytes = bytes;
        self
    }

    /// Memory of the caller for a CPU workspace, aligned as [`Plan::workspace_need`] says.
    pub fn host_memory(mut self, memory: &'m mut [u8]) -> Self {
        self.desc.host_bytes = memory.len() as u64;
        self.desc.host_memory = memory.as_mut_ptr() as *mut c_void;
        self
    }

    /// Memory of the caller for a CUDA workspace.
    ///
    /// # Safety
    /// It has that many bytes, stays for `'m`, and nothing else uses it.
    pub unsafe fn device_memory(mut self, memory: *mut c_void, bytes: u64) -> Self {
        (self.desc.device_memory, self.desc.device_bytes) = (memory, bytes);
        self
    }

    /// # Safety
    /// A CUDA stream, or null.
    pub unsafe fn stream(mut self, stream: *mut c_void) -> Self {
        self.desc.stream = stream;
        self
    }

    pub fn create(self) -> Result<Workspace<'m>> {
        let mut raw = null_mut();
        call!(moe_workspace_create(raw_of(self.runtime), &self.desc, &mut raw))?;
        let hooks = self.runtime.map(Runtime::hooks);
        Ok(Workspace { raw: made(raw), _hooks: hooks, memory: PhantomData })
    }
}

/// What went wrong at run time since the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    pub faults: Fault,
    /// Slots or rows.
    pub n_skipped: i64,
}

impl<'m> Workspace<'m> {
    /// What the plan needs at its `max_tokens`.
    pub fn new(plan: &Plan) -> Result<Workspace<'m>> {
        Workspace::options().plan(plan).create()
    }

    pub fn options<'a>() -> WorkspaceOptions<'m, 'a> {
        WorkspaceOptions::default()
    }

    /// Faults of calls that have finished; they are forgotten.
    pub fn status(&mut self) -> Result<Faults> {
        let mut raw = sized!(moe_workspace_faults);
        call!(moe_workspace_status(self.as_raw(), &mut raw))?;
        Ok(Faults { faults: Fault(raw.faults), n_skipped: raw.n_skipped })
    }
}
