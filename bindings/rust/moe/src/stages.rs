//! The five stages one by one.
use moe_sys as sys;

use crate::calls::{arguments, input, output, routing, type_of, Frame};
use crate::enums::{FinishParts, InLayout, OutLayout};
use crate::error::{call, refuse, sized, Result};
use crate::plan::Plan;
use crate::weights::Weights;
use crate::workspace::Workspace;

arguments! {
    /// x, router input or logits -> ids i32 and weights f32, `[T, top_k]`. With ids given only weights are new.
    Route {
        in x,
        in router_input,
        in logits,
        in ids,
        in token_ids,
        in /// i8 by token, as in [`crate::Forward`].
        uses_second_bias,
        in n_tokens_device,
        out out_ids,
        out out_weights,
        out out_logits,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

impl Route<'_> {
    pub fn run(self, plan: &Plan, weights: &Weights<'_>, workspace: &mut Workspace<'_>) -> Result<()> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let shape = frame.shape;
        let (wide, slots, all) = ((t, shape.hidden), (t, shape.top_k), (t, shape.n_all_experts));
        let mut args = sized!(moe_route_args);
        args.routing = routing(self.logits.is_some(), self.ids.is_some(), false)?.into();
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        let x = frame.x(input(&self.x), wide)?;
        (args.x, args.x_row_stride) = (x.0, x.1);
        let types = [plan.router_input_type()];
        let router_input = frame.rows("router_input", input(&self.router_input), wide, &types)?;
        (args.router_input, args.router_input_row_stride) = (router_input.0, router_input.1);
        let logits = frame.floats("logits", input(&self.logits), all)?;
        (args.logits, args.logits_row_stride) = (logits.0 as *const f32, logits.1);
        let (ids, ids_type) = frame.ids(input(&self.ids), t)?;
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        args.token_ids = frame.token_ids(input(&self.token_ids), t)?;
        args.token_ids_type = type_of(input(&self.token_ids));
        args.uses_second_bias = frame.i8s("uses_second_bias", input(&self.uses_second_bias), t)?;
        let ids = frame.ints("out_ids", output(&self.out_ids), slots)?;
        (args.out_ids, args.out_ids_row_stride) = (ids.0 as *mut i32, ids.1);
        let made = frame.floats("out_weights", output(&self.out_weights), slots)?;
        (args.out_weights, args.out_weights_row_stride) = (made.0 as *mut f32, made.1);
        let logits = frame.floats("out_logits", output(&self.out_logits), all)?;
        (args.out_logits, args.out_logits_row_stride) = (logits.0 as *mut f32, logits.1);
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        call!(moe_route(plan.as_raw(), weights.as_raw(), workspace.as_raw(), &args))
    }
}

arguments! {
    /// ids `[T, top_k]` -> where the rows of each local expert begin, how many there are, and the slot of each row.
    Dispatch {
        in ids,
        in expert_map,
        in n_tokens_device,
        out /// i64, one more than there are local experts.
        out_offsets,
        out /// i64, one for each local expert; may be left out.
        out_counts,
        out /// i32, at least [`Dispatch::row_capacity`].
        out_row_ids,
        set /// Every expert's rows start on a multiple of it; 0 or 1: packed.
        block_rows: i32,
    }
}

impl Dispatch<'_> {
    /// The rows that a call for so many tokens may need.
    pub fn row_capacity(plan: &Plan, n_tokens: usize, block_rows: usize) -> usize {
        let shape = plan.shape();
        n_tokens * shape.top_k + shape.n_local_experts * (block_rows.max(1) - 1)
    }

    pub fn run(self, plan: &Plan, workspace: &mut Workspace<'_>) -> Result<()> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let n_local = frame.shape.n_local_experts;
        let mut args = sized!(moe_dispatch_args);
        args.block_rows = self.block_rows;
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        let (ids, ids_type) = frame.ids(input(&self.ids), t)?;
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        let (map, n_map) = frame.expert_map(input(&self.expert_map))?;
        (args.expert_map, args.n_expert_map) = (map, n_map);
        args.out_offsets = frame.i64s("out_offsets", output(&self.out_offsets), n_local + 1)?;
        args.out_counts = frame.i64s("out_counts", output(&self.out_counts), n_local)?;
        let capacity = output(&self.out_row_ids).map_or(0, |view| view.len());
        args.out_row_ids = frame.i32s("out_row_ids", output(&self.out_row_ids), capacity)?;
        args.row_capacity = capacity as i64;
        args.stream = self.stream;
        call!(moe_dispatch(plan.as_raw(), workspace.as_raw(), &args))
    }
}

arguments! {
    /// Rows of x in the order of a [`Dispatch`], whose offsets, counts and row ids are given.
    Gather {
        in /// `[T, hidden]`, or `[T, latent]` with `x_is_latent`, of the plan's type of x.
        x,
        in offsets,
        in counts,
        in row_ids,
        in /// `[T, top_k]` f32, with `out_row_weights`.
        weights,
        out /// `[n_rows, hidden or latent]`; rows without a token are not written.
        out,
        out /// i32: the token of each row, -1 where there is none; may be left out.
        out_row_tokens,
        out /// f32, likewise.
        out_row_weights,
        set n_rows: usize,
        set x_is_latent: bool,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

impl Gather<'_> {
    pub fn run(self, plan: &Plan, workspace: &mut Workspace<'_>) -> Result<()> {
        let (frame, t, rows) = (Frame::new(plan), self.n_tokens, self.n_rows);
        let shape = frame.shape;
        let width = if self.x_is_latent { shape.latent } else { shape.hidden };
        let mut args = sized!(moe_gather_args);
        args.x_is_latent = self.x_is_latent as i32;
        (args.n_tokens, args.n_rows) = (t as i64, rows as i64);
        let x = frame.x(input(&self.x), (t, width))?;
        (args.x, args.x_row_stride) = (x.0, x.1);
        args.offsets = frame.i64s("offsets", input(&self.offsets), shape.n_local_experts + 1)?;
        args.counts = frame.i64s("counts", input(&self.counts), shape.n_local_experts)?;
        args.row_ids = frame.i32s("row_ids", input(&self.row_ids), rows)?;
        let out = frame.rows("out", output(&self.out), (rows, width), &[plan.x_type()])?;
        (args.out, args.out_row_stride) = (out.0, out.1);
        let weights = frame.floats("weights", input(&self.weights), (t, shape.top_k))?;
        (args.weights, args.weights_row_stride) = (weights.0 as *const f32, weights.1);
        args.out_row_tokens = frame.i32s("out_row_tokens", output(&self.out_row_tokens), rows)?;
        args.out_row_weights = frame.f32s("out_row_weights", output(&self.out_row_weights), rows)?;
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        call!(moe_gather(plan.as_raw(), workspace.as_raw(), &args))
    }
}

arguments! {
    /// Rows -> rows through the experts; the layouts are those of the table above `moe_experts` in `moe.h`.
    ///
    /// x is `[T, .]` of tokens, `[n_rows, .]` sorted or `[local experts, capacity, .]` batched; out by rows is as long.
    Experts {
        in x,
        in ids,
        in weights,
        in expert_map,
        in offsets,
        in counts,
        in row_ids,
        in row_weights,
        in n_tokens_device,
        out out,
        set in_layout: InLayout,
        set out_layout: OutLayout,
        set /// Rows of x when they are sorted, and of out by rows.
        n_rows: usize,
        set /// Rows for each expert when they are batched.
        batch_capacity: usize,
        set x_is_latent: bool,
        set /// Rows of gate and up.
        stop_before_activation: bool,
        set accumulate: bool,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

impl Experts<'_> {
    pub fn run(self, plan: &Plan, weights: &Weights<'_>, workspace: &mut Workspace<'_>) -> Result<()> {
        let args = self.to_c(plan)?;
        call!(moe_experts(plan.as_raw(), weights.as_raw(), workspace.as_raw(), &args))
    }

    /// Rows of x, and of row ids and an output by rows.
    fn row_counts(&self, n_local: usize) -> Result<(usize, usize)> {
        let batched = match n_local.checked_mul(self.batch_capacity) {
            Some(count) => count,
            None => return refuse("batch_capacity", format!("is {}", self.batch_capacity)),
        };
        match self.in_layout {
            InLayout::TOKENS => Ok((self.n_tokens, self.n_rows)),
            InLayout::SORTED => Ok((self.n_rows, self.n_rows)),
            InLayout::BATCHED => Ok((batched, batched)),
            other => refuse("in_layout", format!("{:?} has no length that is known here", other)),
        }
    }

    fn to_c(&self, plan: &Plan) -> Result<sys::moe_experts_args> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let shape = frame.shape;
        let (rows_in, rows_out) = self.row_counts(shape.n_local_experts)?;
        let mut args = sized!(moe_experts_args);
        (args.in_layout, args.out_layout) = (self.in_layout.into(), self.out_layout.into());
        args.stop_before_activation = self.stop_before_activation as i32;
        (args.x_is_latent, args.accumulate) = (self.x_is_latent as i32, self.accumulate as i32);
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        let x =
            frame.x(input(&self.x), (rows_in, if self.x_is_latent { shape.latent } else { shape.hidden }))?;
        (args.x, args.x_row_stride) = (x.0, x.1);
        let (ids, ids_type) = frame.ids(input(&self.ids), t)?;
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        let weights = frame.floats("weights", input(&self.weights), (t, shape.top_k))?;
        (args.weights, args.weights_row_stride) = (weights.0 as *const f32, weights.1);
        let (map, n_map) = frame.expert_map(input(&self.expert_map))?;
        (args.expert_map, args.n_expert_map) = (map, n_map);
        args.offsets = frame.i64s("offsets", input(&self.offsets), shape.n_local_experts + 1)?;
        args.counts = frame.i64s("counts", input(&self.counts), shape.n_local_experts)?;
        args.row_ids = frame.i32s("row_ids", input(&self.row_ids), rows_out)?;
        args.row_weights = frame.f32s("row_weights", input(&self.row_weights), rows_out)?;
        let by_row = self.row_ids.is_some() || self.row_weights.is_some();
        args.n_rows = if self.in_layout != InLayout::BATCHED || by_row { rows_out as i64 } else { 0 };
        args.batch_capacity = self.batch_capacity as i64;
        (args.out, args.out_row_stride) = self.out_rows(&frame, rows_out)?;
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        Ok(args)
    }

    fn out_rows(&self, frame: &Frame<'_>, rows: usize) -> Result<(*mut std::os::raw::c_void, i64)> {
        let shape = frame.shape;
        let width = if self.stop_before_activation { shape.n_features } else { shape.latent };
        let size = match self.out_layout {
            OutLayout::REDUCED => (self.n_tokens, width),
            OutLayout::PER_SLOT => (self.n_tokens, shape.top_k * width),
            OutLayout::ROWS => (rows, width),
            other => return refuse("out_layout", format!("{:?} has no length that is known here", other)),
        };
        frame.out("out", output(&self.out), size)
    }
}

arguments! {
    /// Rows -> tokens `[T, latent]`: the weighted sum over slots. Rows are `[T, top_k, latent]`, or `[n_rows, latent]` with row ids.
    Combine {
        in rows,
        in row_ids,
        in ids,
        in weights,
        in /// For identity experts.
        x,
        in n_tokens_device,
        out out,
        set /// Of rows with row ids.
        n_rows: usize,
        set accumulate: bool,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

impl Combine<'_> {
    pub fn run(self, plan: &Plan, workspace: &mut Workspace<'_>) -> Result<()> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let shape = frame.shape;
        let is_sorted = self.row_ids.is_some();
        let mut args = sized!(moe_combine_args);
        args.rows_layout = if is_sorted { InLayout::SORTED } else { InLayout::TOKENS }.into();
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        let size = if is_sorted { (self.n_rows, shape.latent) } else { (t, shape.top_k * shape.latent) };
        let rows = frame.out("rows", input(&self.rows), size)?;
        (args.rows, args.rows_row_stride) = (rows.0, rows.1);
        args.row_ids = frame.i32s("row_ids", input(&self.row_ids), self.n_rows)?;
        args.n_rows = self.n_rows as i64;
        let (ids, ids_type) = frame.ids(input(&self.ids), t)?;
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        args.accumulate = self.accumulate as i32;
        let weights = frame.floats("weights", input(&self.weights), (t, shape.top_k))?;
        (args.weights, args.weights_row_stride) = (weights.0 as *const f32, weights.1);
        let x = frame.x(input(&self.x), (t, shape.hidden))?;
        (args.x, args.x_row_stride) = (x.0, x.1);
        (args.out, args.out_row_stride) = frame.out("out", output(&self.out), (t, shape.latent))?;
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        call!(moe_combine(plan.as_raw(), workspace.as_raw(), &args))
    }
}

arguments! {
    /// Routed sum `[T, latent]` and x -> output `[T, hidden]`: what is done once, after the sum over slices.
    Finish {
        in /// Zero unless given.
        routed,
        in x,
        in ids,
        in weights,
        in n_tokens_device,
        out out,
        set /// All that apply, unless given.
        parts: FinishParts,
        set accumulate: bool,
        set /// out holds the routed sum already; for layers without a latent.
        in_place: bool,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

impl Finish<'_> {
    pub fn run(self, plan: &Plan, weights: &Weights<'_>, workspace: &mut Workspace<'_>) -> Result<()> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let shape = frame.shape;
        let mut args = sized!(moe_finish_args);
        args.parts = self.parts.0;
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        (args.out, args.out_row_stride) = frame.out("out", output(&self.out), (t, shape.hidden))?;
        let routed = match (self.in_place, &self.routed) {
            (true, Some(_)) => return refuse("routed", "given for a call in place"),
            (true, None) if shape.latent != shape.hidden => {
                return refuse("in_place", "the layer has a latent")
            }
            (true, None) => (args.out, args.out_row_stride),
            (false, _) => frame.out("routed", input(&self.routed), (t, shape.latent))?,
        };
        (args.routed, args.routed_row_stride) = (routed.0, routed.1);
        let x = frame.x(input(&self.x), (t, shape.hidden))?;
        (args.x, args.x_row_stride) = (x.0, x.1);
        let (ids, ids_type) = frame.ids(input(&self.ids), t)?;
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        args.accumulate = self.accumulate as i32;
        let given = frame.floats("weights", input(&self.weights), (t, shape.top_k))?;
        (args.weights, args.weights_row_stride) = (given.0 as *const f32, given.1);
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        call!(moe_finish(plan.as_raw(), weights.as_raw(), workspace.as_raw(), &args))
    }
}
