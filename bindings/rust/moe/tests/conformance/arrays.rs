//! Memory in and out: what is taken, what is refused, and how far it reaches.
use crate::support::{assert_near, case, refused_by_name, Golden, Handles};
use moe::{Fault, Format, Forward, In, Out};
use std::os::raw::{c_int, c_long, c_void};

fn run(call: Forward<'_>, handles: &mut Handles) -> moe::Result<()> {
    call.run(&handles.plan, &handles.weights, &mut handles.workspace)
}

/// BAD-01: an array whose columns are not contiguous cannot be written down as a slice with a row stride.
#[test]
fn bad_01_wrong_lengths_and_types_are_refused_by_name() {
    let golden = Golden::of_case("BIG-01");
    let (mut handles, t, x) = (golden.open(), golden.n_tokens, &golden.x);
    let doubles = vec![0.0f64; x.len()];
    let mut out = vec![7.0f32; x.len()];
    refused_by_name(run(Forward::new(t).x(&x[1..]).out(&mut out), &mut handles), "x");
    refused_by_name(run(Forward::new(t + 1).x(x).out(&mut out), &mut handles), "x");
    refused_by_name(run(Forward::new(t).x(x).out(&mut out[1..]), &mut handles), "out");
    refused_by_name(run(Forward::new(t).x(x).out(&mut out).ids(&golden.ids[1..]), &mut handles), "ids");
    refused_by_name(run(Forward::new(t).x(&doubles).out(&mut out), &mut handles), "x");
    refused_by_name(run(Forward::new(t).x(x).out(&mut out).ids(&golden.weights), &mut handles), "ids");
    refused_by_name(
        run(Forward::new(t).x(x).out(&mut out).weights(&golden.weights), &mut handles),
        "weights",
    );
    let overlapping = In::from(x).with_row_stride(3);
    refused_by_name(run(Forward::new(t).x(overlapping).out(&mut out), &mut handles), "x");
    let short = In::from(x).with_row_stride(65);
    refused_by_name(run(Forward::new(t).x(short).out(&mut out), &mut handles), "x");
    // SAFETY: the call is refused before the memory is looked at.
    let elsewhere = unsafe { In::device(x.as_ptr(), x.len()) };
    refused_by_name(run(Forward::new(t).x(elsewhere).out(&mut out), &mut handles), "x");
    let endless = In::from(x).with_row_stride(usize::MAX);
    refused_by_name(run(Forward::new(t).x(endless).out(&mut out), &mut handles), "x");
    assert!(out.iter().all(|&one| one == 7.0));
}

/// BAD-01
#[test]
fn bad_01_strided_rows_are_taken_where_they_lie() {
    let golden = Golden::of_case("BIG-01");
    let (mut handles, t, stride) = (golden.open(), golden.n_tokens, 71);
    let width = golden.x.len() / t;
    let mut x = vec![f32::NAN; t * stride];
    for (wide, row) in x.chunks_mut(stride).zip(golden.x.chunks(width)) {
        wide[1..=width].copy_from_slice(row);
    }
    let mut out = vec![-7.0f32; t * stride];
    let given = Out::from(&mut out[2..]).with_row_stride(stride);
    run(Forward::new(t).x(In::from(&x[1..]).with_row_stride(stride)).out(given), &mut handles).unwrap();
    let found: Vec<f32> = out.chunks(stride).flat_map(|row| row[2..2 + width].to_vec()).collect();
    assert_near(&found, &golden.y, t, 1e-5);
    let beside = out.chunks(stride).flat_map(|row| [&row[..2], &row[2 + width..]].concat());
    assert!(beside.into_iter().all(|one| one == -7.0));
}

/// BAD-02
#[test]
fn bad_02_ids_outside_the_layer_are_skipped_and_reported() {
    let (golden, fault) = (Golden::of_case("BIG-01"), case("BAD-02")["fault"].i64());
    let mut handles = golden.open();
    let mut ids: Vec<i64> = golden.ids.iter().map(|&id| id as i64).collect();
    let mut weights = golden.weights.clone();
    weights[0] = 5.0;
    let mut forward = |ids: &[i64]| {
        let mut out = vec![f32::NAN; golden.y.len()];
        let call = Forward::new(golden.n_tokens).x(&golden.x).out(&mut out).ids(ids).weights(&weights);
        run(call, &mut handles).unwrap();
        let status = handles.workspace.status().unwrap();
        (out, status.faults, status.n_skipped, handles.workspace.status().unwrap().faults)
    };
    ids[0] = 1 << 40;
    let (found, faults, n_skipped, later) = forward(&ids);
    assert_eq!((faults.0 as i64, n_skipped, later), (fault, 1, Fault(0)));
    assert_eq!(faults, Fault::ID_OUT_OF_RANGE);
    ids[0] = -1;
    let (wanted, faults, ..) = forward(&ids);
    assert!(found == wanted && faults == Fault(0) && found.iter().all(|one| one.is_finite()));
}

extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        from: c_long,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
}

/// BIG-01
#[test]
fn big_01_rows_more_than_2_to_the_31_elements_apart() {
    const READ_WRITE: c_int = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: c_int = 0x4022;
    let (golden, stride) = (Golden::of_case("BIG-01"), case("BIG-01")["row_stride"].i64() as usize);
    assert!(stride > 1 << 31);
    let width = golden.x.len() / golden.n_tokens;
    let count = stride + width;
    // SAFETY: a new mapping, zero until written, unmapped below.
    let memory =
        unsafe { mmap(std::ptr::null_mut(), count * 4, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0) };
    assert_ne!(memory as isize, -1, "no sparse mapping of 8 GiB here");
    let x = unsafe { std::slice::from_raw_parts_mut(memory as *mut f32, count) };
    x[..width].copy_from_slice(&golden.x[..width]);
    x[stride..].copy_from_slice(&golden.x[width..2 * width]);
    let mut handles = golden.open();
    let (mut far, mut near) = (vec![0.0f32; 2 * width], vec![0.0f32; 2 * width]);
    run(Forward::new(2).x(In::from(&*x).with_row_stride(stride)).out(&mut far), &mut handles).unwrap();
    run(Forward::new(2).x(&golden.x[..2 * width]).out(&mut near), &mut handles).unwrap();
    assert_eq!(far, near);
    assert_near(&far, &golden.y[..2 * width], 2, 1e-5);
    unsafe { munmap(memory, count * 4) };
}

/// BIG-02
#[test]
fn big_02_counts_beyond_2_to_the_31() {
    let case = case("BIG-02");
    let format = Format::named(case["format"].str()).unwrap();
    let size = format.size(case["rows"].i64(), case["columns"].i64()).unwrap();
    assert_eq!(size.data_bytes as i64, case["data_bytes"].i64());
    let rows = case["overflowing_rows"].i64();
    let message = format.size(rows, case["columns"].i64()).unwrap_err().message();
    assert!(message.contains(&rows.to_string()), "{}", message);
    let golden = Golden::of_case("BIG-01");
    let checkpoint = moe::Checkpoint::open(&golden.path).unwrap();
    let max_tokens = case["max_tokens"].i64();
    let options = moe::Plan::options(moe::Type::F32, max_tokens).checkpoint(&checkpoint, golden.layer);
    let message = options.device(moe::DeviceKind::CPU).create().unwrap_err().message();
    assert!(message.contains(&max_tokens.to_string()), "{}", message);
}
