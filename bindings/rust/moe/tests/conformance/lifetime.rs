//! Handles: their end, their order, and many threads.
use crate::support::memory::CountingAllocator;
use crate::support::{assert_near, case, Golden};
use moe::{Checkpoint, Forward, Load, Plan, Runtime, Weights, Workspace};

/// LIFE-01
#[test]
#[ignore = "dropping moves the handle: a second drop does not compile"]
fn life_01_closing_twice() {}

/// LIFE-02
#[test]
#[ignore = "dropping moves the handle: its use afterwards does not compile"]
fn life_02_use_after_closing() {}

/// LIFE-03
#[test]
fn life_03_any_order_of_dropping() {
    let (golden, limit) = (Golden::of_case("LIFE-03"), case("LIFE-03")["relative_l2"].f64());
    for is_borrowed in [false, true] {
        let runtime = Runtime::new().unwrap();
        let checkpoint = Checkpoint::options().runtime(&runtime).open(&golden.path).unwrap();
        let first = golden.options(&checkpoint).runtime(&runtime).create().unwrap();
        let second = golden.options(&checkpoint).runtime(&runtime).create().unwrap();
        let load = Load::new();
        let weights = if is_borrowed {
            load.borrowed_checkpoint(&first, &checkpoint, golden.layer).unwrap()
        } else {
            load.checkpoint(&first, &checkpoint, golden.layer).unwrap()
        };
        assert_eq!(weights.memory().unwrap().borrowed_bytes > 0, is_borrowed);
        drop(runtime);
        drop(checkpoint);
        drop(first);
        let mut workspace = Workspace::new(&second).unwrap();
        let mut out = vec![0.0f32; golden.y.len()];
        Forward::new(golden.n_tokens)
            .x(&golden.x)
            .out(&mut out)
            .run(&second, &weights, &mut workspace)
            .unwrap();
        assert_near(&out, &golden.y, golden.n_tokens, limit);
        drop(weights);
        drop(second);
        assert_eq!(workspace.status().unwrap().n_skipped, 0);
    }
}

/// LIFE-04
#[test]
fn life_04_what_goes_out_of_scope_gives_its_memory_back() {
    let (allocator, golden) = (CountingAllocator::default(), Golden::of_case("LIFE-03"));
    {
        let runtime = Runtime::builder().allocator(allocator.clone()).n_threads(2).create().unwrap();
        let mut handles = golden.open_with(Some(&runtime));
        drop(runtime);
        golden.forward(&mut handles);
        assert!(!allocator.0.lock().unwrap().living.is_empty());
    }
    let ledger = allocator.0.lock().unwrap();
    assert!(ledger.living.is_empty() && ledger.problems.is_empty(), "{:?}", ledger.problems);
}

/// THR-01
#[test]
fn thr_01_many_threads_on_one_plan() {
    let (case, golden) = (case("THR-01"), Golden::of_case("THR-01"));
    let mut handles = golden.open();
    let wanted = golden.forward(&mut handles);
    assert_near(&wanted, &golden.y, golden.n_tokens, 1e-5);
    let (plan, weights, rounds) = (&handles.plan, &handles.weights, case["rounds"].i64());
    std::thread::scope(|scope| {
        for _ in 0..case["threads"].i64() {
            scope.spawn(|| {
                let mut own = Workspace::new(plan).unwrap();
                for _ in 0..rounds {
                    let mut out = vec![f32::NAN; wanted.len()];
                    Forward::new(golden.n_tokens)
                        .x(&golden.x)
                        .out(&mut out)
                        .run(plan, weights, &mut own)
                        .unwrap();
                    assert_eq!(out, wanted);
                }
            });
        }
    });
}

/// THR-01
#[test]
fn thr_01_the_number_of_threads_of_a_call() {
    let golden = Golden::of_case("THR-01");
    let mut handles = golden.open();
    let wanted = golden.forward(&mut handles);
    let mut run = |n_threads| {
        let mut out = vec![f32::NAN; wanted.len()];
        let call = Forward::new(golden.n_tokens).x(&golden.x).out(&mut out).n_threads(n_threads);
        call.run(&handles.plan, &handles.weights, &mut handles.workspace).map(|()| out)
    };
    for n_threads in [1, 2, 1000] {
        assert_eq!(run(n_threads).unwrap(), wanted);
    }
    assert!(run(-1).unwrap_err().to_string().contains("n_threads is -1"));
}

/// THR-01
#[test]
fn thr_01_a_layer_serves_many_threads() {
    let golden = Golden::of_case("THR-01");
    let layer = moe::Layer::open(&golden.path, moe::DeviceKind::CPU).unwrap();
    let wanted = layer.forward(&golden.x).unwrap();
    assert_near(&wanted, &golden.y, golden.n_tokens, 1e-5);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(layer.forward(&golden.x).unwrap(), wanted)));
        }
    });
}

/// Whether a type is Sync, without a bound: the inherent constant hides that of the trait where it is there.
trait NotSync {
    const IS_SYNC: bool = false;
}
impl<T: ?Sized> NotSync for Wrapper<T> {}
struct Wrapper<T: ?Sized>(std::marker::PhantomData<T>);
#[allow(dead_code)]
impl<T: ?Sized + Sync> Wrapper<T> {
    const IS_SYNC: bool = true;
}

/// THR-02: a call borrows its workspace mutably, and a workspace is not Sync; the doc test of Workspace shows that it does not
/// compile.
#[test]
fn thr_02_a_second_user_is_impossible() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<Workspace<'static>>();
    is_shared::<(Runtime, Checkpoint, Plan, Weights<'static>)>();
    let found = [<Wrapper<Workspace<'static>>>::IS_SYNC, <Wrapper<Plan>>::IS_SYNC];
    assert_eq!(found, [false, true]);
}

#[test]
fn forward_by_several_threads() {
    let golden = Golden::of_case("THR-01");
    let mut handles = golden.open();
    for n_threads in [1, 3] {
        let mut out = vec![f32::NAN; golden.y.len()];
        let call = Forward::new(golden.n_tokens).x(&golden.x).out(&mut out);
        call.run_spmd(&handles.plan, &handles.weights, &mut handles.workspace, n_threads).unwrap();
        assert_near(&out, &golden.y, golden.n_tokens, 1e-5);
    }
}
