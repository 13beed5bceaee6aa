//! The stages one by one, and the layouts of experts.
use crate::support::{assert_near, case, Golden, Handles};
use moe::{Combine, Dispatch, Experts, Finish, Gather, InLayout, OutLayout, Route};

struct Placed {
    offsets: Vec<i64>,
    counts: Vec<i64>,
    row_ids: Vec<i32>,
}

fn dispatch(handles: &mut Handles, ids: &[i32], n_tokens: usize) -> Placed {
    let n_local = handles.plan.shape().n_local_experts;
    let mut placed = Placed {
        offsets: vec![-7; n_local + 1],
        counts: vec![-7; n_local],
        row_ids: vec![-7; Dispatch::row_capacity(&handles.plan, n_tokens, 0)],
    };
    let call =
        Dispatch::new(n_tokens).ids(ids).out_offsets(&mut placed.offsets).out_counts(&mut placed.counts);
    call.out_row_ids(&mut placed.row_ids).run(&handles.plan, &mut handles.workspace).unwrap();
    placed
}

fn experts(handles: &mut Handles, call: Experts<'_>) {
    call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
}

/// FWD-03
#[test]
fn fwd_03_stage_by_stage() {
    let (golden, limit) = (Golden::of_case("FWD-03"), case("FWD-03")["relative_l2"].f64());
    let (mut handles, t) = (golden.open(), golden.n_tokens);
    let (mut ids, mut weights) = (vec![-7; golden.ids.len()], vec![f32::NAN; golden.weights.len()]);
    let call = Route::new(t).x(&golden.x).out_ids(&mut ids).out_weights(&mut weights);
    call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    assert_eq!(ids, golden.ids);
    let mut again = vec![f32::NAN; weights.len()];
    let call = Route::new(t).x(&golden.x).ids(&ids).out_weights(&mut again);
    call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    assert_near(&again, &golden.weights, t, limit);

    let placed = dispatch(&mut handles, &ids, t);
    assert_eq!(*placed.offsets.last().unwrap(), ids.len() as i64);
    assert_eq!(placed.counts.iter().sum::<i64>(), ids.len() as i64);
    let mut slots = placed.row_ids.clone();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..ids.len() as i32));

    let width = golden.y.len() / t;
    let mut rows = vec![f32::NAN; ids.len() * width];
    let call =
        Experts::new(t).x(&golden.x).offsets(&placed.offsets).row_ids(&placed.row_ids).n_rows(ids.len());
    experts(&mut handles, call.out_layout(OutLayout::ROWS).out(&mut rows));
    let mut routed = vec![f32::NAN; golden.y.len()];
    let call =
        Combine::new(t).rows(&rows).row_ids(&placed.row_ids).n_rows(ids.len()).ids(&ids).weights(&weights);
    call.out(&mut routed).run(&handles.plan, &mut handles.workspace).unwrap();
    let mut out = vec![f32::NAN; golden.y.len()];
    let call = Finish::new(t).routed(&routed).x(&golden.x).ids(&ids).weights(&weights).out(&mut out);
    call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    assert_near(&out, &golden.y, t, limit);

    let mut fused = vec![f32::NAN; golden.y.len()];
    experts(&mut handles, Experts::new(t).x(&golden.x).ids(&ids).weights(&weights).out(&mut fused));
    assert_near(&fused, &routed, t, 1e-5);
    let call = Finish::new(t).in_place(true).x(&golden.x).ids(&ids).weights(&weights).out(&mut fused);
    call.run(&handles.plan, &handles.weights, &mut handles.workspace).unwrap();
    assert_near(&fused, &golden.y, t, limit);
}

/// FWD-03: sorted and batched rows give the rows that tokens give.
#[test]
fn fwd_03_layouts_of_experts() {
    let golden = Golden::of_case("FWD-02");
    let (mut handles, t, ids) = (golden.open(), golden.n_tokens, &golden.ids);
    let (shape, n_rows) = (handles.plan.shape(), ids.len());
    let width = shape.hidden;
    let Placed { offsets, counts, row_ids } = dispatch(&mut handles, ids, t);
    let (mut gathered, mut row_weights) = (vec![f32::NAN; n_rows * width], vec![f32::NAN; n_rows]);
    let mut row_tokens = vec![-7; n_rows];
    let call = Gather::new(t).x(&golden.x).offsets(&offsets).counts(&counts).row_ids(&row_ids).n_rows(n_rows);
    let call = call.out(&mut gathered).weights(&golden.weights).out_row_weights(&mut row_weights);
    call.out_row_tokens(&mut row_tokens).run(&handles.plan, &mut handles.workspace).unwrap();
    for (row, &slot) in row_ids.iter().enumerate() {
        let token = slot as usize / shape.top_k;
        assert_eq!(gathered[row * width..][..width], golden.x[token * width..][..width]);
        assert_eq!((row_tokens[row], row_weights[row]), (token as i32, golden.weights[slot as usize]));
    }
    let mut rows = vec![f32::NAN; n_rows * width];
    let by_row = || Experts::new(t).n_rows(n_rows).out_layout(OutLayout::ROWS);
    experts(&mut handles, by_row().x(&golden.x).offsets(&offsets).row_ids(&row_ids).out(&mut rows));

    let row = |slot: &i32| golden.x[*slot as usize / shape.top_k * width..][..width].to_vec();
    let sorted: Vec<f32> = row_ids.iter().flat_map(row).collect();
    let mut again = vec![f32::NAN; rows.len()];
    experts(&mut handles, by_row().in_layout(InLayout::SORTED).x(&sorted).offsets(&offsets).out(&mut again));
    assert_near(&again, &rows, n_rows, 1e-5);
    let mut reduced = vec![f32::NAN; golden.y.len()];
    let call = Experts::new(t).n_rows(n_rows).in_layout(InLayout::SORTED).x(&sorted).offsets(&offsets);
    experts(&mut handles, call.row_ids(&row_ids).weights(&golden.weights).out(&mut reduced));
    assert_near(&reduced, &golden.y, t, 1e-5);

    let capacity = *counts.iter().max().unwrap() as usize;
    let mut batched = vec![0.0f32; shape.n_local_experts * capacity * width];
    for (expert, &count) in counts.iter().enumerate() {
        let (from, size) = (offsets[expert] as usize * width, count as usize * width);
        batched[expert * capacity * width..][..size].copy_from_slice(&sorted[from..][..size]);
    }
    let mut out = vec![f32::NAN; batched.len()];
    let call =
        Experts::new(0).in_layout(InLayout::BATCHED).out_layout(OutLayout::ROWS).batch_capacity(capacity);
    experts(&mut handles, call.x(&batched).counts(&counts).out(&mut out));
    let used = |expert: usize| &out[expert * capacity * width..][..counts[expert] as usize * width];
    let used: Vec<f32> = (0..counts.len()).flat_map(|expert| used(expert).to_vec()).collect();
    assert_near(&used, &rows, n_rows, 1e-5);

    let mut half = vec![f32::NAN; n_rows * shape.n_features];
    let call = by_row().stop_before_activation(true).x(&golden.x).offsets(&offsets).row_ids(&row_ids);
    experts(&mut handles, call.out(&mut half));
    assert!(half.iter().all(|one| one.is_finite()) && half.iter().any(|&one| one != 0.0));
    let mut slots = vec![f32::NAN; n_rows * width];
    experts(
        &mut handles,
        Experts::new(t).x(&golden.x).ids(ids).out_layout(OutLayout::PER_SLOT).out(&mut slots),
    );
    let mut combined = vec![f32::NAN; golden.y.len()];
    let call = Combine::new(t).rows(&slots).ids(ids).weights(&golden.weights).out(&mut combined);
    call.run(&handles.plan, &mut handles.workspace).unwrap();
    assert_near(&combined, &golden.y, t, 1e-5);
}
