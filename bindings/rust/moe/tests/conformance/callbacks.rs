//! Progress, log, allocator and parallel_for of the caller.
use crate::support::memory::CountingAllocator;
use crate::support::{assert_near, case, status_of, Golden};
use moe::{Allocator, Checkpoint, Load, LogLevel, Runtime, Space, Status};
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn golden() -> Golden {
    Golden::of_case("CALL-05")
}

/// CALL-01
#[test]
fn call_01_progress_counts_and_cancels() {
    let (golden, allocator) = (golden(), CountingAllocator::default());
    let runtime = Runtime::builder().allocator(allocator.clone()).create().unwrap();
    let handles = golden.open_with(Some(&runtime));
    drop(handles.weights);
    let before = allocator.0.lock().unwrap().living.clone();
    let mut seen = Vec::new();
    let mut progress = |done, total| {
        seen.push((done, total));
        if seen.len() == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let load = Load::new().progress(&mut progress);
    let status = status_of(load.checkpoint(&handles.plan, &handles.checkpoint, golden.layer));
    assert_eq!(status.0 as i64, case("CALL-01")["status"].i64());
    assert!(
        seen.len() == 2 && seen[0].0 <= seen[1].0 && seen[1].0 <= seen[1].1 && seen[0].1 > 0,
        "{:?}",
        seen
    );
    assert_eq!(allocator.0.lock().unwrap().living, before);

    let mut last = (0, 1);
    let mut progress = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    Load::new().progress(&mut progress).checkpoint(&handles.plan, &handles.checkpoint, golden.layer).unwrap();
    assert_eq!(last.0, last.1);
}

/// CALL-02
#[test]
fn call_02_a_panic_in_progress_comes_out_behind_the_call() {
    let golden = golden();
    let handles = golden.open();
    let mut progress = |_, _| panic!("in the callback");
    let load = Load::new().progress(&mut progress);
    let caught =
        catch_unwind(AssertUnwindSafe(|| load.checkpoint(&handles.plan, &handles.checkpoint, golden.layer)));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "in the callback");
    assert!(Load::new().checkpoint(&handles.plan, &handles.checkpoint, golden.layer).is_ok());
}

struct Broken;
// SAFETY: it gives no memory.
unsafe impl Allocator for Broken {
    fn allocate(&self, _: u64, _: u64, _: Space, _: *mut c_void) -> *mut c_void {
        panic!("in the allocator")
    }
    unsafe fn release(&self, _: *mut c_void, _: u64, _: u64, _: Space, _: *mut c_void) {}
}

/// CALL-02
#[test]
fn call_02_panics_in_other_callbacks_do_no_harm() {
    let (golden, calls) = (golden(), Arc::new(AtomicUsize::new(0)));
    let (in_log, in_loop) = (calls.clone(), calls.clone());
    let runtime = Runtime::builder().log_level(LogLevel::DEBUG).n_threads(3).log(move |_, _| {
        in_log.fetch_add(1, Ordering::Relaxed);
        panic!("in the log")
    });
    let runtime = runtime.parallel_for(move |_, task| {
        in_loop.fetch_add(1 << 32, Ordering::Relaxed);
        task(0);
        panic!("in the loop")
    });
    let mut handles = golden.open_with(Some(&runtime.create().unwrap()));
    assert_eq!(golden.forward(&mut handles), golden.forward(&mut golden.open()));
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls >> 32 > 0 && calls as u32 > 0);

    let opened = Runtime::builder().allocator(Broken).create();
    let opened = opened.and_then(|runtime| Checkpoint::options().runtime(&runtime).open(&golden.path));
    assert_eq!(status_of(opened), Status::OUT_OF_MEMORY);
}

/// CALL-03
#[test]
fn call_03_the_allocator_serves_handles_and_gets_all_back() {
    let (golden, allocator) = (golden(), CountingAllocator::default());
    let runtime = Runtime::builder().allocator(allocator.clone()).n_threads(2).create().unwrap();
    let mut handles = golden.open_with(Some(&runtime));
    let report = handles.weights.memory().unwrap();
    let kept = report.host_bytes + report.bookkeeping_bytes;
    assert!(kept > 0 && allocator.0.lock().unwrap().total >= kept);
    golden.forward(&mut handles);
    drop(handles);
    drop(runtime);
    let ledger = allocator.0.lock().unwrap();
    assert!(ledger.living.is_empty() && ledger.problems.is_empty(), "{:?}", ledger.problems);
}

/// CALL-04
#[test]
fn call_04_log_lines() {
    let golden = golden();
    let lines_of = |level| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = lines.clone();
        let log = move |level: LogLevel, line: &str| written.lock().unwrap().push((level, line.to_string()));
        let runtime = Runtime::builder().log(log).log_level(level).create().unwrap();
        Checkpoint::options().runtime(&runtime).open(&golden.path).unwrap();
        let found = lines.lock().unwrap().clone();
        found
    };
    let lines = lines_of(LogLevel::INFO);
    assert!(lines.iter().any(|(_, line)| line.contains(golden.path.to_str().unwrap())), "{:?}", lines);
    assert!(lines.iter().all(|(level, line)| level.name().is_some() && !line.contains('\n')));
    assert!(lines_of(LogLevel::WARNING).is_empty());
}

/// CALL-05
#[test]
fn call_05_parallel_for_of_the_caller() {
    let (golden, most) = (golden(), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let run = move |n_tasks: i32, task: moe::Task<'_>| {
        seen.fetch_max(n_tasks as usize, Ordering::Relaxed);
        std::thread::scope(|scope| (0..n_tasks).for_each(|index| drop(scope.spawn(move || task(index)))));
    };
    let runtime = Runtime::builder().parallel_for(run).n_threads(3).create().unwrap();
    let found = golden.forward(&mut golden.open_with(Some(&runtime)));
    assert!((1..=3).contains(&most.load(Ordering::Relaxed)));
    assert_eq!(found, golden.forward(&mut golden.open()));
    assert_near(&found, &golden.y, golden.n_tokens, 1e-5);
}

/// CALL-05: tasks that are requested twice, or that do not exist, run once or not at all.
#[test]
fn call_05_a_careless_parallel_for_does_no_harm() {
    let golden = golden();
    let run =
        |n_tasks: i32, task: moe::Task<'_>| (-1..=n_tasks).for_each(|index| (0..2).for_each(|_| task(index)));
    let runtime = Runtime::builder().parallel_for(run).n_threads(3).create().unwrap();
    assert_eq!(golden.forward(&mut golden.open_with(Some(&runtime))), golden.forward(&mut golden.open()));
}
