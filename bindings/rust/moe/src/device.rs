//! Memory and streams of a device, for programs that have no other way to a GPU. On the CPU they are host memory and no stream.
use std::mem::size_of;
use std::os::raw::c_void;
use std::ptr::null_mut;

use crate::enums::{DeviceKind, Space};
use crate::error::{call, refuse, Result};
use crate::runtime::{raw_of, Runtime};
use crate::views::Element;

/// A stream of a device, destroyed when it is dropped.
pub struct Stream {
    raw: *mut c_void,
    kind: DeviceKind,
    index: i32,
}

// SAFETY: a stream is used from any thread.
unsafe impl Send for Stream {}
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(kind: DeviceKind, index: i32) -> Result<Stream> {
        let mut raw = null_mut();
        call!(moe_stream_create(kind.into(), index, &mut raw))?;
        Ok(Stream { raw, kind, index })
    }

    /// Waits for all work on it.
    pub fn synchronize(&self) -> Result<()> {
        call!(moe_stream_synchronize(self.kind.into(), self.index, self.raw))
    }

    /// For the `stream` of a call; null on the CPU.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What it answers nobody can act on.
        let _ = call!(moe_stream_destroy(self.kind.into(), self.index, self.raw));
    }
}

/// Memory of a device, freed when it is dropped: work that uses it must have ended. `address` goes into `In::device` and
/// `Out::device`.
pub struct DeviceMemory<'r> {
    address: *mut c_void,
    bytes: usize,
    space: Space,
    kind: DeviceKind,
    index: i32,
    runtime: Option<&'r Runtime>,
}

// SAFETY: memory is used from any thread; what writes to it borrows it mutably.
unsafe impl Send for DeviceMemory<'_> {}
unsafe impl Sync for DeviceMemory<'_> {}

impl<'r> DeviceMemory<'r> {
    /// The runtime's allocator serves it; none is the default.
    pub fn new(
        runtime: Option<&'r Runtime>,
        kind: DeviceKind,
        index: i32,
        space: Space,
        bytes: usize,
    ) -> Result<Self> {
        let mut address = null_mut();
        let means = raw_of(runtime);
        call!(moe_memory_allocate(means, kind.into(), index, space.into(), bytes as u64, &mut address))?;
        Ok(DeviceMemory { address, bytes, space, kind, index, runtime })
    }

    pub fn address(&self) -> *mut c_void {
        self.address
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies a slice to its beginning, behind the work on the stream, and waits.
    pub fn upload<T: Element>(&mut self, from: &[T], stream: &Stream) -> Result<()> {
        let bytes = self.fitting::<T>("from", from.len())?;
        self.copy(self.address, from.as_ptr() as *const c_void, bytes, stream)
    }

    /// Copies its beginning into a slice, behind the work on the stream, and waits.
    pub fn download<T: Element>(&self, to: &mut [T], stream: &Stream) -> Result<()> {
        let bytes = self.fitting::<T>("to", to.len())?;
        self.copy(to.as_mut_ptr() as *mut c_void, self.address, bytes, stream)
    }

    /// All of it, behind the work on the stream, and waits.
    pub fn zero(&mut self, stream: &Stream) -> Result<()> {
        call!(moe_memory_zero(self.kind.into(), self.index, self.address, self.bytes as u64, stream.raw))?;
        stream.synchronize()
    }

    fn fitting<T>(&self, name: &'static str, len: usize) -> Result<u64> {
        match len.checked_mul(size_of::<T>()) {
            Some(bytes) if bytes <= self.bytes => Ok(bytes as u64),
            _ => refuse(name, format!("has {} elements, the memory {} bytes", len, self.bytes)),
        }
    }

    fn copy(&self, to: *mut c_void, from: *const c_void, bytes: u64, stream: &Stream) -> Result<()> {
        call!(moe_memory_copy(self.kind.into(), self.index, to, from, bytes, stream.raw))?;
        stream.synchronize()
    }
}

impl Drop for DeviceMemory<'_> {
    fn drop(&mut self) {
        let (means, bytes) = (raw_of(self.runtime), self.bytes as u64);
        let (kind, space) = (self.kind.into(), self.space.into());
        // What it answers nobody can act on.
        let _ = call!(moe_memory_free(means, kind, self.index, space, bytes, self.address));
    }
}
