//! Callbacks of the caller: C functions around closures. A panic ends here: it never crosses the library's frames.
use moe_sys as sys;
use std::any::Any;
use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::enums::{LogLevel, Space};

/// Serves every byte that handles keep.
///
/// # Safety
/// `allocate` gives memory of that size and alignment that nothing else uses until `release`, or null. Neither may unwind
/// with effects left half done: a panic is caught, and counts as null.
pub unsafe trait Allocator: Send + Sync {
    /// `bytes > 0`, `alignment` a power of two. `stream` is the stream that uses the memory first, or null.
    fn allocate(&self, bytes: u64, alignment: u64, space: Space, stream: *mut c_void) -> *mut c_void;

    /// # Safety
    /// `memory` came from `allocate` with the same numbers, and is released once.
    unsafe fn release(
        &self,
        memory: *mut c_void,
        bytes: u64,
        alignment: u64,
        space: Space,
        stream: *mut c_void,
    );
}

/// One piece of a parallel loop; called with an index it runs that piece, the first time.
pub type Task<'a> = &'a (dyn Fn(i32) + Sync);
pub(crate) type Log = Box<dyn Fn(LogLevel, &str) + Send + Sync>;
pub(crate) type ParallelFor = Box<dyn Fn(i32, Task<'_>) + Send + Sync>;
pub(crate) type Progress<'p> = &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// What the library calls as long as the runtime or something made with it lives; handles share it.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) log: Option<Log>,
    pub(crate) parallel_for: Option<ParallelFor>,
    pub(crate) allocator: Option<Box<dyn Allocator>>,
}

// A payload may panic when it is dropped, so it is not.
fn quietly<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(std::mem::forget).ok()
}

pub(crate) unsafe extern "C" fn log(
    level: sys::moe_log_level,
    message: *const c_char,
    user_data: *mut c_void,
) {
    // SAFETY: user_data is the closure that the runtime's hooks own; message is a C string.
    let (write, message) = unsafe { (&*(user_data as *const Log), CStr::from_ptr(message)) };
    quietly(|| write(level.into(), &message.to_string_lossy()));
}

pub(crate) unsafe extern "C" fn parallel_for(
    n_tasks: i32,
    task: sys::moe_task_fn,
    task_data: *mut c_void,
    user_data: *mut c_void,
) {
    struct Data(*mut c_void);
    // SAFETY: the library lets any thread run a task.
    unsafe impl Sync for Data {}

    // SAFETY: as above.
    let run_all = unsafe { &*(user_data as *const ParallelFor) };
    let started: Vec<AtomicBool> = (0..n_tasks).map(|_| AtomicBool::new(false)).collect();
    let data = Data(task_data);
    let data = &data;
    let run = |index: i32| {
        let first = started.get(index as usize).map(|one| !one.swap(true, Ordering::Relaxed));
        if let (Some(true), Some(task)) = (first, task) {
            // SAFETY: an index in range, once.
            unsafe { task(index, data.0) };
        }
    };
    quietly(|| run_all(n_tasks, &run));
    (0..n_tasks).for_each(run); // what a broken loop left
}

pub(crate) unsafe extern "C" fn allocate(
    bytes: u64,
    alignment: u64,
    space: sys::moe_space,
    stream: *mut c_void,
    user_data: *mut c_void,
) -> *mut c_void {
    // SAFETY: as above.
    let allocator = unsafe { &*(user_data as *const Box<dyn Allocator>) };
    quietly(|| allocator.allocate(bytes, alignment, space.into(), stream)).unwrap_or(std::ptr::null_mut())
}

pub(crate) unsafe extern "C" fn release(
    memory: *mut c_void,
    bytes: u64,
    alignment: u64,
    space: sys::moe_space,
    stream: *mut c_void,
    user_data: *mut c_void,
) {
    // SAFETY: as above; the library gives back what it got, once.
    let allocator = unsafe { &*(user_data as *const Box<dyn Allocator>) };
    quietly(|| unsafe { allocator.release(memory, bytes, alignment, space.into(), stream) });
}

/// A progress callback of one call, and the panic that came out of it.
pub(crate) struct Watch<'p> {
    progress: Progress<'p>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<'p> Watch<'p> {
    pub(crate) fn new(progress: Progress<'p>) -> Watch<'p> {
        Watch { progress, panic: None }
    }

    /// Goes on with the panic that the callback ended with, if it did.
    pub(crate) fn finish(self) {
        if let Some(payload) = self.panic {
            std::panic::resume_unwind(payload);
        }
    }
}

pub(crate) unsafe extern "C" fn progress(done: u64, total: u64, user_data: *mut c_void) -> i32 {
    // SAFETY: the Watch of the call that is running, on the same thread.
    let watch = unsafe { &mut *(user_data as *mut Watch<'_>) };
    match catch_unwind(AssertUnwindSafe(|| (watch.progress)(done, total))) {
        Ok(answer) => answer.is_break() as i32,
        Err(payload) => {
            watch.panic.get_or_insert(payload);
            1
        }
    }
}
