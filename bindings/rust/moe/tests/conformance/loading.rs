//! Loading in the background.
use crate::support::memory::CountingAllocator;
use crate::support::{assert_near, case, refused_by_name, status_of, Golden};
use moe::{Checkpoint, Load, Loading, Plan, Role, Runtime, Space, Status, Tensor};
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::sync::{Arc, Condvar, Mutex};

fn golden() -> Golden {
    Golden::of_case("CALL-06")
}

/// CALL-06
#[test]
fn call_06_weights_of_a_checkpoint_that_is_dropped_meanwhile() {
    let golden = golden();
    for is_borrowed in [false, true] {
        let checkpoint = moe::Checkpoint::open(&golden.path).unwrap();
        let plan = golden.options(&checkpoint).create().unwrap();
        let loading = if is_borrowed {
            Load::new().start_borrowed_checkpoint(&plan, &checkpoint, golden.layer)
        } else {
            Load::new().start_checkpoint(&plan, &checkpoint, golden.layer)
        };
        drop(checkpoint);
        drop(plan);
        expect_golden(&golden, loading.unwrap());
    }
}

/// CALL-06: tensors that do not end.
#[test]
fn call_06_weights_of_tensors() {
    let golden = golden();
    let checkpoint: &'static Checkpoint = Box::leak(Box::new(Checkpoint::open(&golden.path).unwrap()));
    for is_borrowed in [false, true] {
        let plan = golden.options(checkpoint).create().unwrap();
        let tensors = checkpoint.tensors(golden.layer).unwrap();
        let loading = if is_borrowed {
            Load::new().start_borrowed(&plan, tensors)
        } else {
            Load::new().start(&plan, tensors)
        };
        drop(plan);
        expect_golden(&golden, loading.unwrap());
    }
}

fn expect_golden(golden: &Golden, loading: Loading) {
    let mut handles = golden.open();
    handles.weights = loading.wait().unwrap();
    let done = loading.poll().unwrap();
    assert!(done.is_done && done.status == Status::OK && done.bytes_done == done.bytes_total);
    assert_eq!(status_of(loading.wait()), Status::NOT_FOUND);
    drop(loading);
    assert_near(&golden.forward(&mut handles), &golden.y, golden.n_tokens, 1e-5);
}

/// Holds the thread that allocates once `is_armed`.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<(bool, bool)>, Condvar)>, CountingAllocator); // is armed, is held

impl Gate {
    fn arm(&self) {
        self.0 .0.lock().unwrap().0 = true;
    }
    fn wait_until_held(&self) {
        let mut state = self.0 .0.lock().unwrap();
        while !state.1 {
            state = self.0 .1.wait(state).unwrap();
        }
    }
    fn open(&self) {
        self.0 .0.lock().unwrap().0 = false;
        self.0 .1.notify_all();
    }
}

// SAFETY: that of the CountingAllocator.
unsafe impl moe::Allocator for Gate {
    fn allocate(&self, bytes: u64, alignment: u64, space: Space, stream: *mut c_void) -> *mut c_void {
        let mut state = self.0 .0.lock().unwrap();
        while state.0 && std::thread::current().name() != Some("caller") {
            state.1 = true;
            self.0 .1.notify_all();
            state = self.0 .1.wait(state).unwrap();
        }
        drop(state);
        self.1.allocate(bytes, alignment, space, stream)
    }
    unsafe fn release(
        &self,
        memory: *mut c_void,
        bytes: u64,
        alignment: u64,
        space: Space,
        stream: *mut c_void,
    ) {
        // SAFETY: from allocate.
        unsafe { self.1.release(memory, bytes, alignment, space, stream) }
    }
}

/// Starts a load of which the library's thread is held, and gives it to `end` with what opens the gate.
fn with_held_load(end: impl FnOnce(&Gate, Loading) + Send + 'static) {
    let work = move || {
        let (golden, gate) = (golden(), Gate::default());
        let runtime = Runtime::builder().allocator(gate.clone()).create().unwrap();
        let handles = golden.open_with(Some(&runtime));
        drop(handles.weights);
        let before = gate.1 .0.lock().unwrap().living.clone();
        gate.arm();
        let loading = Load::new().start_checkpoint(&handles.plan, &handles.checkpoint, golden.layer).unwrap();
        gate.wait_until_held();
        end(&gate, loading);
        assert_eq!(gate.1 .0.lock().unwrap().living, before);
    };
    std::thread::Builder::new().name("caller".into()).spawn(work).unwrap().join().unwrap();
}

/// CALL-06
#[test]
fn call_06_cancel_ends_the_load_and_leaves_nothing() {
    with_held_load(|gate, loading| {
        let now = loading.poll().unwrap();
        assert!(!now.is_done && now.status == Status::OK && now.bytes_done < now.bytes_total);
        loading.cancel().unwrap();
        gate.open();
        for _ in 0..2 {
            assert_eq!(status_of(loading.wait()).0 as i64, case("CALL-06")["status"].i64());
        }
        assert_eq!(loading.poll().unwrap().status, Status::CANCELLED);
    });
}

/// CALL-06
#[test]
fn call_06_drop_cancels_and_waits() {
    with_held_load(|gate, loading| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                gate.open();
            });
            drop(loading);
        });
    });
}

fn tensors_of_one_matrix(plan: &Plan) -> Vec<Tensor<'static>> {
    let shape = plan.shape();
    let (rows, columns) = (shape.n_local_experts as i64, shape.hidden as i64);
    let values: &'static [f32] = vec![0.5f32; (rows * columns) as usize].leak();
    vec![Tensor::dense(Role::ROUTER, rows, columns, values)]
}

/// CALL-06: what can be told at once is, everything else comes with wait.
#[test]
fn call_06_errors_come_with_wait() {
    let golden = golden();
    let handles = golden.open();
    let loading = Load::new().start(&handles.plan, tensors_of_one_matrix(&handles.plan)).unwrap();
    let first = loading.wait().unwrap_err();
    assert_eq!(first.status(), loading.wait().unwrap_err().status());
    assert_eq!(loading.poll().unwrap().status, first.status().unwrap());
    assert!(!first.message().is_empty());
    let mut progress = |_, _| ControlFlow::Continue(());
    let load = Load::new().progress(&mut progress);
    refused_by_name(load.start_checkpoint(&handles.plan, &handles.checkpoint, golden.layer), "progress");
    let absent = Load::new().start_checkpoint(&handles.plan, &handles.checkpoint, 12345);
    assert_eq!(status_of(absent.and_then(|loading| loading.wait())), Status::NOT_FOUND);
}
