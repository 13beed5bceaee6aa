//! Weights: the tensors of one layer in a plan's layout.
use moe_sys as sys;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::{null_mut, NonNull};
use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::enums::{Ownership, Role, Space, Status};
use crate::error::{c_path, call, refuse, sized, Result};
use crate::hooks::{self, Hooks, Watch};
use crate::plan::Plan;
use crate::runtime::{handle, made};
use crate::tensor::Tensor;

/// The tensors of one layer. They refer to no plan: another one of the same layout id can use them. `'a` is that of memory
/// which they borrow; `'static` where they do not. A handle that was dropped, and tensors that end before weights which borrow
/// them, do not compile. Beside each is what does, with one line changed or moved:
///
/// ```compile_fail,E0382
/// fn f(plan: moe::Plan) {
///     drop(plan);
///     plan.layout_id().unwrap();
/// }
/// ```
/// ```no_run
/// fn f(plan: moe::Plan) {
///     plan.layout_id().unwrap();
///     drop(plan);
/// }
/// ```
/// ```compile_fail,E0515
/// fn f(plan: &moe::Plan) -> moe::Weights<'static> {
///     let gate: &[f32] = &vec![0.0f32; 512];
///     let tensor = moe::Tensor::dense(moe::Role::GATE, 16, 32, gate);
///     moe::Load::new().borrowed(plan, &[tensor]).unwrap()
/// }
/// ```
/// ```no_run
/// fn f(plan: &moe::Plan) -> moe::Weights<'static> {
///     let gate: &[f32] = &[0.0f32; 512]; // a constant: it does not end
///     let tensor = moe::Tensor::dense(moe::Role::GATE, 16, 32, gate);
///     moe::Load::new().borrowed(plan, &[tensor]).unwrap()
/// }
/// ```
/// ```no_run
/// fn f(plan: &moe::Plan) -> moe::Weights<'static> {
///     let gate: &[f32] = &vec![0.0f32; 512];
///     let tensor = moe::Tensor::dense(moe::Role::GATE, 16, 32, gate);
///     moe::Load::new().tensors(plan, &[tensor]).unwrap() // a copy
/// }
/// ```
pub struct Weights<'a> {
    raw: NonNull<sys::moe_weights>,
    ownership: Ownership,
    _hooks: Vec<Arc<Hooks>>, // released after the handle
    memory: PhantomData<&'a mut [u8]>,
}

handle!(Weights<'a>, moe_weights, moe_weights_destroy);
// SAFETY: moe.h: any number of threads at once; updates borrow mutably.
unsafe impl Sync for Weights<'_> {}

/// `moe_memory_report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    pub n_local_experts: u32,
    pub host_bytes: u64,
    pub pinned_bytes: u64,
    pub device_bytes: u64,
    pub borrowed_bytes: u64,
    pub bookkeeping_bytes: u64,
    role_bytes: [u64; 32],
}

impl MemoryReport {
    /// Of codes and scales of the slice, owned or borrowed.
    pub fn role_bytes(&self, role: Role) -> u64 {
        self.role_bytes.get(role.0 as usize).copied().unwrap_or(0)
    }
}

/// How weights are loaded: into memory of the allocator unless said otherwise. `'m` is that of memory for them, `'p` that of
/// the progress callback.
#[must_use]
pub struct Load<'m, 'p> {
    memory: Option<(*mut c_void, u64, Space)>,
    stream: *mut c_void,
    progress: Option<hooks::Progress<'p>>,
    life: PhantomData<&'m mut [u8]>,
}

impl Default for Load<'_, '_> {
    fn default() -> Self {
        Load { memory: None, stream: null_mut(), progress: None, life: PhantomData }
    }
}

impl<'m, 'p> Load<'m, 'p> {
    pub fn new() -> Self {
        Load::default()
    }

    /// Into host memory of the caller, on 64 bytes, of [`Weights::size`] bytes at least; for CPU plans.
    pub fn into_memory(mut self, memory: &'m mut [u8]) -> Self {
        self.memory = Some((memory.as_mut_ptr() as *mut c_void, memory.len() as u64, Space::HOST));
        self
    }

    /// Into device memory of the caller, on 128 bytes; for CUDA plans.
    ///
    /// # Safety
    /// It has that many bytes, stays for `'m`, and nothing else writes to it.
    pub unsafe fn into_device_memory(mut self, memory: *mut c_void, bytes: u64) -> Self {
        self.memory = Some((memory, bytes, Space::DEVICE));
        self
    }

    /// # Safety
    /// A CUDA stream, or null; it lives until the load is done, in the background, too.
    pub unsafe fn stream(mut self, stream: *mut c_void) -> Self {
        self.stream = stream;
        self
    }

    /// Bytes done of a total; `Break` cancels the load. A panic cancels it too, and goes on behind the call.
    pub fn progress(mut self, progress: &'p mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Self {
        self.progress = Some(progress);
        self
    }

    fn ownership(&self) -> Ownership {
        if self.memory.is_some() {
            Ownership::CALLER
        } else {
            Ownership::COPY
        }
    }

    /// Copies the tensors.
    pub fn tensors(self, plan: &Plan, tensors: &[Tensor<'_>]) -> Result<Weights<'m>> {
        let ownership = self.ownership();
        self.load(plan, tensors, ownership)
    }

    /// Reads the matrices where they lie: they stay borrowed until the weights are dropped. For CPU plans.
    pub fn borrowed(self, plan: &Plan, tensors: &[Tensor<'m>]) -> Result<Weights<'m>> {
        self.refuse_memory()?;
        self.load(plan, tensors, Ownership::BORROW)
    }

    /// Copies one layer of a checkpoint.
    pub fn checkpoint(self, plan: &Plan, checkpoint: &Checkpoint, layer: i32) -> Result<Weights<'m>> {
        let ownership = self.ownership();
        self.load_checkpoint(plan, checkpoint, layer, ownership)
    }

    /// Reads the matrices where the file is mapped; the mapping stays, whatever becomes of the checkpoint. For CPU plans.
    pub fn borrowed_checkpoint(
        self,
        plan: &Plan,
        checkpoint: &Checkpoint,
        layer: i32,
    ) -> Result<Weights<'m>> {
        self.refuse_memory()?;
        self.load_checkpoint(plan, checkpoint, layer, Ownership::BORROW)
    }

    fn refuse_memory(&self) -> Result<()> {
        match self.memory {
            Some(_) => refuse("memory", "given for weights that are borrowed"),
            None => Ok(()),
        }
    }

    fn load(self, plan: &Plan, tensors: &[Tensor<'_>], ownership: Ownership) -> Result<Weights<'m>> {
        let structs = Structs::new(tensors)?;
        let mut desc = self.desc(&structs, ownership);
        let mut raw = null_mut();
        watched(self.progress, |progress, user_data| {
            (desc.progress, desc.progress_user_data) = (progress, user_data);
            call!(moe_weights_load(plan.as_raw(), &desc, &mut raw))
        })?;
        Ok(Weights::of(raw, ownership, [plan.hooks(), None]))
    }

    fn load_checkpoint(
        self,
        plan: &Plan,
        checkpoint: &Checkpoint,
        layer: i32,
        ownership: Ownership,
    ) -> Result<Weights<'m>> {
        let mut options = self.load_options(ownership);
        let mut raw = null_mut();
        watched(self.progress, |progress, user_data| {
            (options.progress, options.progress_user_data) = (progress, user_data);
            call!(moe_weights_load_checkpoint(plan.as_raw(), checkpoint.as_raw(), layer, &options, &mut raw))
        })?;
        Ok(Weights::of(raw, ownership, [plan.hooks(), checkpoint.hooks()]))
    }

    // Without the progress callback, as is load_options.
    fn desc(&self, structs: &Structs, ownership: Ownership) -> sys::moe_weights_desc {
        let mut desc = structs.desc();
        desc.ownership = ownership.into();
        if let Some((memory, bytes, space)) = self.memory {
            (desc.memory, desc.memory_bytes, desc.memory_space) = (memory, bytes, space.into());
        }
        desc.stream = self.stream;
        desc
    }

    fn load_options(&self, ownership: Ownership) -> sys::moe_load_options {
        let mut options = sized!(moe_load_options);
        options.ownership = ownership.into();
        if let Some((memory, bytes, _)) = self.memory {
            (options.memory, options.memory_bytes) = (memory, bytes);
        }
        options.stream = self.stream;
        options
    }
}

/// Loads in the background. What a [`Loading`] refers to is `'static`: one that is forgotten would go on with memory that ended.
impl Load<'static, '_> {
    /// [`Load::tensors`] that returns at once. Tensors that end do not compile:
    ///
    /// ```compile_fail,E0515
    /// fn f(plan: &moe::Plan) -> moe::Loading {
    ///     let gate: &[f32] = &vec![0.0f32; 512];
    ///     let tensor = moe::Tensor::dense(moe::Role::GATE, 16, 32, gate);
    ///     moe::Load::new().start(plan, vec![tensor]).unwrap()
    /// }
    /// ```
    /// ```no_run
    /// fn f(plan: &moe::Plan) -> moe::Loading {
    ///     let gate: &[f32] = &[0.0f32; 512]; // a constant: it does not end
    ///     let tensor = moe::Tensor::dense(moe::Role::GATE, 16, 32, gate);
    ///     moe::Load::new().start(plan, vec![tensor]).unwrap()
    /// }
    /// ```
    pub fn start(self, plan: &Plan, tensors: Vec<Tensor<'static>>) -> Result<Loading> {
        let ownership = self.ownership();
        self.start_load(plan, tensors, ownership)
    }

    /// [`Load::borrowed`] that returns at once.
    pub fn start_borrowed(self, plan: &Plan, tensors: Vec<Tensor<'static>>) -> Result<Loading> {
        self.refuse_memory()?;
        self.start_load(plan, tensors, Ownership::BORROW)
    }

    /// [`Load::checkpoint`] that returns at once; plan and checkpoint may be dropped then.
    pub fn start_checkpoint(self, plan: &Plan, checkpoint: &Checkpoint, layer: i32) -> Result<Loading> {
        let ownership = self.ownership();
        self.start_load_checkpoint(plan, checkpoint, layer, ownership)
    }

    /// [`Load::borrowed_checkpoint`] that returns at once.
    pub fn start_borrowed_checkpoint(
        self,
        plan: &Plan,
        checkpoint: &Checkpoint,
        layer: i32,
    ) -> Result<Loading> {
        self.refuse_memory()?;
        self.start_load_checkpoint(plan, checkpoint, layer, Ownership::BORROW)
    }

    fn start_load(self, plan: &Plan, tensors: Vec<Tensor<'static>>, ownership: Ownership) -> Result<Loading> {
        self.refuse_progress()?;
        let structs = Structs::new(&tensors)?; // point into tensors, which the Loading keeps
        let desc = self.desc(&structs, ownership);
        let mut raw = null_mut();
        call!(moe_loading_start(plan.as_raw(), &desc, &mut raw))?;
        Ok(Loading::of(raw, ownership, [plan.hooks(), None], tensors))
    }

    fn start_load_checkpoint(
        self,
        plan: &Plan,
        checkpoint: &Checkpoint,
        layer: i32,
        ownership: Ownership,
    ) -> Result<Loading> {
        self.refuse_progress()?;
        let options = self.load_options(ownership);
        let mut raw = null_mut();
        call!(moe_loading_start_checkpoint(plan.as_raw(), checkpoint.as_raw(), layer, &options, &mut raw))?;
        Ok(Loading::of(raw, ownership, [plan.hooks(), checkpoint.hooks()], Vec::new()))
    }

    fn refuse_progress(&self) -> Result<()> {
        match self.progress {
            Some(_) => refuse("progress", "given for a load in the background, which poll and cancel serve"),
            None => Ok(()),
        }
    }
}

/// Weights that are being loaded on a thread of the library, from [`Load::start`] and the like. Any number of threads may poll,
/// wait and cancel. Dropping it cancels and waits for the thread.
#[must_use]
pub struct Loading {
    raw: NonNull<sys::moe_loading>,
    ownership: Ownership,
    hooks: [Option<Arc<Hooks>>; 2], // released after the handle
    _tensors: Vec<Tensor<'static>>, // their tables are read until the load is done
}

handle!(Loading, moe_loading, moe_loading_destroy);
// SAFETY: moe.h: any number of threads at once.
unsafe impl Sync for Loading {}

/// `moe_loading_progress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadingProgress {
    /// [`Loading::wait`] does not wait.
    pub is_done: bool,
    /// `OK` until it is done, then what [`Loading::wait`] answers for the load.
    pub status: Status,
    pub bytes_done: u64,
    pub bytes_total: u64,
}

impl Loading {
    fn of(
        raw: *mut sys::moe_loading,
        ownership: Ownership,
        hooks: [Option<Arc<Hooks>>; 2],
        tensors: Vec<Tensor<'static>>,
    ) -> Loading {
        Loading { raw: made(raw), ownership, hooks, _tensors: tensors }
    }

    /// How far it is; never waits.
    pub fn poll(&self) -> Result<LoadingProgress> {
        let mut raw = sized!(moe_loading_progress);
        call!(moe_loading_poll(self.as_raw(), &mut raw))?;
        Ok(LoadingProgress {
            is_done: raw.is_done != 0,
            status: Status(raw.status),
            bytes_done: raw.bytes_done,
            bytes_total: raw.bytes_total,
        })
    }

    /// The weights, once they are there; a second time they are `NOT_FOUND`. A load that failed gives its error to every caller.
    pub fn wait(&self) -> Result<Weights<'static>> {
        let mut raw = null_mut();
        call!(moe_loading_wait(self.as_raw(), &mut raw))?;
        Ok(Weights::of(raw, self.ownership, self.hooks.clone()))
    }

    /// Asks the load to stop and returns at once: it ends before its next expert with `CANCELLED`, or is done by then.
    pub fn cancel(&self) -> Result<()> {
        call!(moe_loading_cancel(self.as_raw()))
    }
}

fn watched(
    progress: Option<hooks::Progress<'_>>,
    load: impl FnOnce(sys::moe_progress_fn, *mut c_void) -> Result<()>,
) -> Result<()> {
    let progress = match progress {
        None => return load(None, null_mut()),
        Some(progress) => progress,
    };
    let mut watch = Watch::new(progress);
    let result = load(Some(hooks::progress), &mut watch as *mut Watch<'_> as *mut c_void);
    watch.finish();
    result
}

/// The C structs of tensors, and the pointers to them.
struct Structs {
    _structs: Vec<sys::moe_tensor>,
    pointers: Vec<*const sys::moe_tensor>,
}

impl Structs {
    fn new(tensors: &[Tensor<'_>]) -> Result<Structs> {
        let structs = tensors.iter().map(Tensor::to_c).collect::<Result<Vec<sys::moe_tensor>>>()?;
        let pointers = structs.iter().map(|one| one as *const _).collect();
        Ok(Structs { _structs: structs, pointers })
    }

    fn desc(&self) -> sys::moe_weights_desc {
        let mut desc = sized!(moe_weights_desc);
        (desc.tensors, desc.n_tensors) = (self.pointers.as_ptr(), self.pointers.len() as u32);
        desc
    }
}

impl<'a> Weights<'a> {
    fn of(raw: *mut sys::moe_weights, ownership: Ownership, hooks: [Option<Arc<Hooks>>; 2]) -> Weights<'a> {
        let hooks = IntoIterator::into_iter(hooks).flatten().collect();
        Weights { raw: made(raw), ownership, _hooks: hooks, memory: PhantomData }
    }

    /// Copies the tensors; [`Load`] has other ways.
    pub fn load(plan: &Plan, tensors: &[Tensor<'_>]) -> Result<Weights<'a>> {
        Load::new().tensors(plan, tensors)
    }

    /// Copies one layer of a checkpoint.
    pub fn load_checkpoint(plan: &Plan, checkpoint: &Checkpoint, layer: i32) -> Result<Weights<'a>> {
        Load::new().checkpoint(plan, checkpoint, layer)
    }

    /// Bytes that a copy takes for the matrices; on a device, for everything.
    pub fn size(plan: &Plan, tensors: &[Tensor<'_>]) -> Result<u64> {
        let structs = Structs::new(tensors)?;
        let mut bytes = 0;
        call!(moe_weights_size(plan.as_raw(), &structs.desc(), &mut bytes))?;
        Ok(bytes)
    }

    /// Replaces the tensors of one expert, of one role without experts, or of a stack, in weights that are a copy.
    pub fn update(&mut self, tensor: &Tensor<'_>) -> Result<()> {
        // SAFETY: the default stream.
        unsafe { self.update_on(tensor, null_mut()) }
    }

    /// The same, ordered on a stream of the weights' device; it is done when the call returns. Weights of a CPU ignore it.
    ///
    /// # Safety
    /// A CUDA stream, or null for the default one.
    pub unsafe fn update_on(&mut self, tensor: &Tensor<'_>, stream: *mut c_void) -> Result<()> {
        if self.ownership == Ownership::BORROW {
            return refuse(
                "tensor",
                "the weights borrow their matrices: update_borrowed takes one that lives as long",
            );
        }
        self.replace(tensor, stream)
    }

    /// [`Weights::update`] for weights that borrow: the matrices are borrowed from now on from where this tensor lies.
    pub fn update_borrowed(&mut self, tensor: &Tensor<'a>) -> Result<()> {
        self.replace(tensor, null_mut())
    }

    fn replace(&mut self, tensor: &Tensor<'_>, stream: *mut c_void) -> Result<()> {
        call!(moe_weights_update(self.as_raw(), &tensor.to_c()?, stream))
    }

    pub fn layout_id(&self) -> Result<[u8; 16]> {
        let mut id = [0; 16];
        call!(moe_weights_layout_id(self.as_raw(), id.as_mut_ptr()))?;
        Ok(id)
    }

    pub fn memory(&self) -> Result<MemoryReport> {
        let mut raw = sized!(moe_memory_report);
        call!(moe_weights_memory(self.as_raw(), &mut raw))?;
        Ok(MemoryReport {
            n_local_experts: raw.n_local_experts,
            host_bytes: raw.host_bytes,
            pinned_bytes: raw.pinned_bytes,
            device_bytes: raw.device_bytes,
            borrowed_bytes: raw.borrowed_bytes,
            bookkeeping_bytes: raw.bookkeeping_bytes,
            role_bytes: raw.role_bytes,
        })
    }

    /// Packed weights to a file, which replaces what is there when it is whole; for CUDA plans. Those of the CPU read their
    /// checkpoint: `UNSUPPORTED`.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        call!(moe_weights_save(self.as_raw(), c_path("path", path.as_ref())?.as_ptr()))
    }

    /// Back from a file of [`Weights::save`], without packing again; for CUDA plans, else `UNSUPPORTED`. A file of another
    /// layout is `LAYOUT_MISMATCH`, a damaged one `CORRUPT_FILE`.
    pub fn open(plan: &Plan, path: impl AsRef<Path>) -> Result<Weights<'a>> {
        let mut raw = null_mut();
        call!(moe_weights_open(plan.as_raw(), c_path("path", path.as_ref())?.as_ptr(), &mut raw))?;
        Ok(Weights::of(raw, Ownership::COPY, [plan.hooks(), None]))
    }
}
