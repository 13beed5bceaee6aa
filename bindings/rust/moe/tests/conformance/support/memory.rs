//! An allocator that keeps a ledger.
use moe::{Allocator, Space};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::os::raw::c_void;
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub struct Ledger {
    pub living: BTreeMap<usize, (u64, u64)>,
    pub total: u64,
    pub problems: Vec<String>,
}

#[derive(Clone, Default)]
pub struct CountingAllocator(pub Arc<Mutex<Ledger>>);

fn layout(bytes: u64, alignment: u64) -> Layout {
    Layout::from_size_align(bytes as usize, alignment as usize).unwrap()
}

// SAFETY: memory of the system's allocator.
unsafe impl Allocator for CountingAllocator {
    fn allocate(&self, bytes: u64, alignment: u64, space: Space, _stream: *mut c_void) -> *mut c_void {
        // SAFETY: bytes is not zero.
        let memory = unsafe { std::alloc::alloc(layout(bytes, alignment)) } as *mut c_void;
        let mut ledger = self.0.lock().unwrap();
        ledger.living.insert(memory as usize, (bytes, alignment));
        ledger.total += bytes;
        if space != Space::HOST || bytes == 0 {
            ledger.problems.push(format!("{} bytes of {:?}", bytes, space));
        }
        memory
    }

    unsafe fn release(
        &self,
        memory: *mut c_void,
        bytes: u64,
        alignment: u64,
        space: Space,
        _stream: *mut c_void,
    ) {
        let mut ledger = self.0.lock().unwrap();
        if ledger.living.remove(&(memory as usize)) != Some((bytes, alignment)) || space != Space::HOST {
            ledger.problems.push(format!("{:p} of {} bytes was never allocated", memory, bytes));
            return;
        }
        // SAFETY: allocated above with this layout.
        std::alloc::dealloc(memory as *mut u8, layout(bytes, alignment))
    }
}
