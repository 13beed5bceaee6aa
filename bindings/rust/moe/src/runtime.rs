//! The means of the library: memory, threads, log; and the devices it sees.
use moe_sys as sys;
use std::os::raw::c_void;
use std::ptr::{null, null_mut, NonNull};
use std::sync::Arc;

use crate::enums::{DeviceKind, LogLevel};
use crate::error::{array_text, c_string, call, sized, Result};
use crate::hooks::{self, Allocator, Hooks, Task};

/// Implements what all handles have: a pointer, its end, and what threads may do with it.
macro_rules! handle {
    ($name:ident $(<$life:lifetime>)?, $raw:ident, $destroy:ident) => {
        impl $(<$life>)? $name $(<$life>)? {
            /// The handle, for `moe::sys`; it stays this object's.
            pub fn as_raw(&self) -> *mut moe_sys::$raw {
                self.raw.as_ptr()
            }
        }

        impl $(<$life>)? Drop for $name $(<$life>)? {
            fn drop(&mut self) {
                // SAFETY: made by the library, ended once; nobody borrows it any more.
                unsafe { moe_sys::$destroy(self.raw.as_ptr()) }
            }
        }

        impl $(<$life>)? std::fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(out, "{}({:p})", stringify!($name), self.raw)
            }
        }

        // SAFETY: moe.h: functions may be called from any thread.
        unsafe impl $(<$life>)? Send for $name $(<$life>)? {}
    };
}
pub(crate) use handle;

/// A handle of the library, which is never NULL after a call that succeeded.
pub(crate) fn made<T>(raw: *mut T) -> NonNull<T> {
    NonNull::new(raw).expect("libmoe gave no handle")
}

/// Memory, threads and log of the handles made with it. Where none is given, that of the process is used.
pub struct Runtime {
    raw: NonNull<sys::moe_runtime>,
    hooks: Arc<Hooks>,
}

handle!(Runtime, moe_runtime, moe_runtime_destroy);
// SAFETY: moe.h: any number of threads at once.
unsafe impl Sync for Runtime {}

impl Runtime {
    /// All defaults.
    pub fn new() -> Result<Runtime> {
        Runtime::builder().create()
    }

    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    pub(crate) fn hooks(&self) -> Arc<Hooks> {
        self.hooks.clone()
    }
}

pub(crate) fn raw_of(runtime: Option<&Runtime>) -> *mut sys::moe_runtime {
    runtime.map_or(null_mut(), Runtime::as_raw)
}

/// What a [`Runtime`] is made of; everything has a default.
#[derive(Default)]
#[must_use]
pub struct RuntimeBuilder {
    n_threads: i32,
    log_level: LogLevel,
    cublaslt_path: Option<String>,
    nccl_path: Option<String>,
    hooks: Hooks,
}

impl RuntimeBuilder {
    /// CPU threads, the caller's included; 0: one per core.
    pub fn n_threads(mut self, count: i32) -> Self {
        self.n_threads = count;
        self
    }

    /// Lines of text from any thread, in place of standard error.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.hooks.log = Some(Box::new(log));
        self
    }

    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    pub fn allocator(mut self, allocator: impl Allocator + 'static) -> Self {
        self.hooks.allocator = Some(Box::new(allocator));
        self
    }

    /// `(n, task)` calls `task(i)` once for each `i` in `0..n`, on any threads, and returns when all are done. What it leaves
    /// out, by a panic for instance, is run after it.
    pub fn parallel_for(mut self, run: impl Fn(i32, Task<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.parallel_for = Some(Box::new(run));
        self
    }

    pub fn cublaslt_path(mut self, path: impl Into<String>) -> Self {
        self.cublaslt_path = Some(path.into());
        self
    }

    pub fn nccl_path(mut self, path: impl Into<String>) -> Self {
        self.nccl_path = Some(path.into());
        self
    }

    pub fn create(self) -> Result<Runtime> {
        let hooks = Arc::new(self.hooks);
        let mut desc = sized!(moe_runtime_desc);
        desc.n_threads = self.n_threads;
        desc.log_level = self.log_level.into();
        if let Some(log) = &hooks.log {
            desc.log = Some(hooks::log);
            desc.log_user_data = log as *const _ as *mut c_void;
        }
        if let Some(parallel_for) = &hooks.parallel_for {
            desc.parallel_for = Some(hooks::parallel_for);
            desc.parallel_for_user_data = parallel_for as *const _ as *mut c_void;
        }
        let mut allocator = sized!(moe_allocator);
        if let Some(given) = &hooks.allocator {
            allocator.allocate = Some(hooks::allocate);
            allocator.release = Some(hooks::release);
            allocator.user_data = given as *const _ as *mut c_void;
            desc.allocator = &allocator;
        }
        let cublaslt = self.cublaslt_path.map(|path| c_string("cublaslt_path", &path)).transpose()?;
        let nccl = self.nccl_path.map(|path| c_string("nccl_path", &path)).transpose()?;
        desc.cublaslt_path = cublaslt.as_ref().map_or(null(), |path| path.as_ptr());
        desc.nccl_path = nccl.as_ref().map_or(null(), |path| path.as_ptr());
        let mut raw = null_mut();
        call!(moe_runtime_create(&desc, &mut raw))?;
        Ok(Runtime { raw: made(raw), hooks })
    }
}

/// `moe_device_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub kind: DeviceKind,
    pub index: i32,
    pub name: String,
    pub n_cores: i32,
    pub memory_bytes: u64,
    /// CUDA: compute capability.
    pub arch: (i32, i32),
    /// CPU: "avx2 fma ...".
    pub features: String,
}

pub fn device_count(kind: DeviceKind) -> Result<i32> {
    let mut count = 0;
    call!(moe_device_count(kind.into(), &mut count))?;
    Ok(count)
}

pub fn device_info(kind: DeviceKind, index: i32) -> Result<DeviceInfo> {
    let mut raw = sized!(moe_device_info);
    call!(moe_device_get_info(kind.into(), index, &mut raw))?;
    Ok(DeviceInfo {
        kind: raw.kind.into(),
        index: raw.index,
        name: array_text(&raw.name),
        n_cores: raw.n_cores,
        memory_bytes: raw.memory_bytes,
        arch: (raw.arch_major, raw.arch_minor),
        features: array_text(&raw.features),
    })
}
