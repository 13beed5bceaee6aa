//! `moe_forward` and `moe_forward_spmd`, and what they share with the stages.
use moe_sys as sys;
use std::os::raw::c_void;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex};

use crate::enums::{DeviceKind, OutLayout, Routing, Type};
use crate::error::{call, refuse, Error, Result};
use crate::plan::{Plan, Shape};
use crate::tensor::ACTIVATIONS;
use crate::views::{In, Out, View, ABSENT};
use crate::weights::Weights;
use crate::workspace::Workspace;

pub(crate) const IDS: [Type; 2] = [Type::I32, Type::I64];
const I8: [Type; 1] = [Type::I8];
const I32: [Type; 1] = [Type::I32];
const I64: [Type; 1] = [Type::I64];
const F32: [Type; 1] = [Type::F32];

/// Checks the memory of one call against a plan.
pub(crate) struct Frame<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) shape: Shape,
    device: DeviceKind,
}

type Rows = (*mut c_void, i64);

impl<'p> Frame<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Frame<'p> {
        Frame { plan, shape: plan.shape(), device: plan.device_kind() }
    }

    pub(crate) fn rows(
        &self,
        name: &'static str,
        view: Option<View>,
        size: (usize, usize),
        types: &[Type],
    ) -> Result<Rows> {
        view.map_or(Ok(ABSENT), |view| view.rows(name, size, types, self.device))
    }

    pub(crate) fn floats(
        &self,
        name: &'static str,
        view: Option<View>,
        size: (usize, usize),
    ) -> Result<Rows> {
        self.rows(name, view, size, &F32)
    }

    pub(crate) fn ints(&self, name: &'static str, view: Option<View>, size: (usize, usize)) -> Result<Rows> {
        self.rows(name, view, size, &I32)
    }

    fn dense(
        &self,
        name: &'static str,
        view: Option<View>,
        len: usize,
        types: &[Type],
    ) -> Result<*mut c_void> {
        view.map_or(Ok(null_mut()), |view| view.dense(name, len, types, self.device))
    }

    pub(crate) fn i8s(&self, name: &'static str, view: Option<View>, len: usize) -> Result<*mut i8> {
        self.dense(name, view, len, &I8).map(|found| found as *mut i8)
    }

    pub(crate) fn i32s(&self, name: &'static str, view: Option<View>, len: usize) -> Result<*mut i32> {
        self.dense(name, view, len, &I32).map(|found| found as *mut i32)
    }

    pub(crate) fn i64s(&self, name: &'static str, view: Option<View>, len: usize) -> Result<*mut i64> {
        self.dense(name, view, len, &I64).map(|found| found as *mut i64)
    }

    pub(crate) fn f32s(&self, name: &'static str, view: Option<View>, len: usize) -> Result<*mut f32> {
        self.dense(name, view, len, &F32).map(|found| found as *mut f32)
    }

    pub(crate) fn token_ids(&self, view: Option<View>, n_tokens: usize) -> Result<*mut c_void> {
        self.dense("token_ids", view, n_tokens, &IDS)
    }

    /// Ids by slot, and their type.
    pub(crate) fn ids(&self, view: Option<View>, n_tokens: usize) -> Result<(Rows, sys::moe_type)> {
        Ok((self.rows("ids", view, (n_tokens, self.shape.top_k), &IDS)?, type_of(view)))
    }

    pub(crate) fn expert_map(&self, view: Option<View>) -> Result<(*mut i32, i32)> {
        let n_experts = self.shape.n_experts;
        Ok((self.i32s("expert_map", view, n_experts)?, view.map_or(0, |_| n_experts as i32)))
    }

    pub(crate) fn x(&self, view: Option<View>, size: (usize, usize)) -> Result<Rows> {
        self.rows("x", view, size, &[self.plan.x_type()])
    }

    pub(crate) fn out(&self, name: &'static str, view: Option<View>, size: (usize, usize)) -> Result<Rows> {
        self.rows(name, view, size, &[self.plan.out_type()])
    }
}

pub(crate) fn type_of(view: Option<View>) -> sys::moe_type {
    view.map_or(Type::NONE, |view| view.kind).into()
}

/// Arguments of a call: memory is optional, flags are off, unless set.
macro_rules! arguments {
    (
        $(#[$doc:meta])*
        $name:ident {
            $(in $(#[$in_doc:meta])* $in_field:ident,)*
            $(out $(#[$out_doc:meta])* $out_field:ident,)*
            $(set $(#[$set_doc:meta])* $set_field:ident: $set_kind:ty,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use]
        pub struct $name<'a> {
            $($in_field: Option<$crate::views::In<'a>>,)*
            $($out_field: Option<$crate::views::Out<'a>>,)*
            $($set_field: $set_kind,)*
            n_tokens: usize,
            stream: *mut std::os::raw::c_void,
        }

        impl<'a> $name<'a> {
            /// Of a call for so many tokens.
            pub fn new(n_tokens: usize) -> Self {
                $name {
                    $($in_field: None,)*
                    $($out_field: None,)*
                    $($set_field: Default::default(),)*
                    n_tokens,
                    stream: std::ptr::null_mut(),
                }
            }

            $($(#[$in_doc])*
            pub fn $in_field(mut self, memory: impl Into<$crate::views::In<'a>>) -> Self {
                self.$in_field = Some(memory.into());
                self
            })*

            $($(#[$out_doc])*
            pub fn $out_field(mut self, memory: impl Into<$crate::views::Out<'a>>) -> Self {
                self.$out_field = Some(memory.into());
                self
            })*

            $($(#[$set_doc])*
            pub fn $set_field(mut self, value: $set_kind) -> Self {
                self.$set_field = value;
                self
            })*

            /// # Safety
            /// A CUDA stream, or null for the default one. CPU plans ignore it.
            pub unsafe fn stream(mut self, stream: *mut std::os::raw::c_void) -> Self {
                self.stream = stream;
                self
            }
        }
    };
}
pub(crate) use arguments;

pub(crate) fn input(given: &Option<In<'_>>) -> Option<View> {
    given.as_ref().map(|one| one.0)
}

pub(crate) fn output(given: &Option<Out<'_>>) -> Option<View> {
    given.as_ref().map(|one| one.0)
}

arguments! {
    /// x `[T, hidden]` -> out `[T, hidden]`. Routing is computed, or comes from logits, ids, or ids and weights.
    ///
    /// ```no_run
    /// # fn f(plan: &moe::Plan, weights: &moe::Weights, workspace: &mut moe::Workspace, x: &[f32], out: &mut [f32]) {
    /// let n_tokens = x.len() / plan.shape().hidden;
    /// moe::Forward::new(n_tokens).x(x).out(out).run(plan, weights, workspace).unwrap();
    /// # }
    /// ```
    Forward {
        in x,
        in router_input,
        in logits,
        in ids,
        in /// Needs ids.
        weights,
        in token_ids,
        in /// i8 by token, for layers with a second selection bias: which tokens it chooses for.
        uses_second_bias,
        in /// Global id -> local expert or -1, for this call.
        expert_map,
        in /// One i32: the true number of tokens.
        n_tokens_device,
        out out,
        out out_logits,
        out out_ids,
        out out_weights,
        out out_expert_counts,
        set /// out is `[T, top_k, latent]`, unweighted; for partial plans.
        per_slot: bool,
        set /// Adds to what out holds.
        accumulate: bool,
        set /// CPU threads of the call at most; 0: those of the runtime.
        n_threads: i32,
    }
}

pub(crate) fn routing(logits: bool, ids: bool, weights: bool) -> Result<Routing> {
    match (logits, ids, weights) {
        (_, false, true) => refuse("weights", "given without ids"),
        (_, true, true) => Ok(Routing::IDS_AND_WEIGHTS),
        (_, true, false) => Ok(Routing::IDS),
        (true, false, false) => Ok(Routing::LOGITS),
        (false, false, false) => Ok(Routing::COMPUTE),
    }
}

impl Forward<'_> {
    /// A call of a CUDA plan returns when its work is on the stream.
    pub fn run(self, plan: &Plan, weights: &Weights<'_>, workspace: &mut Workspace<'_>) -> Result<()> {
        let args = self.to_c(plan)?;
        call!(moe_forward(plan.as_raw(), weights.as_raw(), workspace.as_raw(), &args))
    }

    /// `moe_forward_spmd`: the same by `n_threads` threads, this one and others that live as long as the call.
    pub fn run_spmd(
        self,
        plan: &Plan,
        weights: &Weights<'_>,
        workspace: &mut Workspace<'_>,
        n_threads: i32,
    ) -> Result<()> {
        if n_threads < 1 {
            return refuse("n_threads", format!("is {}, must be at least 1", n_threads));
        }
        let team = Team {
            plan: plan.as_raw(),
            weights: weights.as_raw(),
            workspace: workspace.as_raw(),
            args: self.to_c(plan)?,
            n_threads,
        };
        team.run()
    }

    fn to_c(&self, plan: &Plan) -> Result<sys::moe_forward_args> {
        let (frame, t) = (Frame::new(plan), self.n_tokens);
        let shape = frame.shape;
        let (slots, all) = ((t, shape.top_k), (t, shape.n_all_experts));
        let mut args = crate::error::sized!(moe_forward_args);
        args.routing = routing(self.logits.is_some(), self.ids.is_some(), self.weights.is_some())?.into();
        args.n_tokens = t as i64;
        args.n_tokens_device = frame.i32s("n_tokens_device", input(&self.n_tokens_device), 1)?;
        let ((x, x_stride), (ids, ids_type)) =
            (frame.x(input(&self.x), (t, shape.hidden))?, frame.ids(input(&self.ids), t)?);
        (args.x, args.x_row_stride) = (x, x_stride);
        let router_types = [plan.router_input_type()];
        let router_input =
            frame.rows("router_input", input(&self.router_input), (t, shape.hidden), &router_types)?;
        (args.router_input, args.router_input_row_stride) = (router_input.0, router_input.1);
        let logits = frame.floats("logits", input(&self.logits), all)?;
        (args.logits, args.logits_row_stride) = (logits.0 as *const f32, logits.1);
        (args.ids, args.ids_row_stride, args.ids_type) = (ids.0, ids.1, ids_type);
        let weights = frame.rows("weights", input(&self.weights), slots, &ACTIVATIONS)?;
        (args.weights, args.weights_row_stride) = (weights.0, weights.1);
        args.weights_type = type_of(input(&self.weights));
        args.token_ids = frame.token_ids(input(&self.token_ids), t)?;
        args.token_ids_type = type_of(input(&self.token_ids));
        args.uses_second_bias = frame.i8s("uses_second_bias", input(&self.uses_second_bias), t)?;
        let (map, n_map) = frame.expert_map(input(&self.expert_map))?;
        (args.expert_map, args.n_expert_map) = (map, n_map);
        self.set_outputs(&frame, &mut args)?;
        args.stream = self.stream;
        args.n_threads = self.n_threads;
        Ok(args)
    }

    fn set_outputs(&self, frame: &Frame<'_>, args: &mut sys::moe_forward_args) -> Result<()> {
        let (shape, t) = (frame.shape, self.n_tokens);
        let width = if self.per_slot { shape.top_k * shape.latent } else { shape.out_width };
        (args.out, args.out_row_stride) = frame.out("out", output(&self.out), (t, width))?;
        args.out_layout = if self.per_slot { OutLayout::PER_SLOT } else { OutLayout::REDUCED }.into();
        args.accumulate = self.accumulate as i32;
        let logits = frame.floats("out_logits", output(&self.out_logits), (t, shape.n_all_experts))?;
        (args.out_logits, args.out_logits_row_stride) = (logits.0 as *mut f32, logits.1);
        let ids = frame.ints("out_ids", output(&self.out_ids), (t, shape.top_k))?;
        (args.out_ids, args.out_ids_row_stride) = (ids.0 as *mut i32, ids.1);
        let weights = frame.floats("out_weights", output(&self.out_weights), (t, shape.top_k))?;
        (args.out_weights, args.out_weights_row_stride) = (weights.0 as *mut f32, weights.1);
        args.out_expert_counts =
            frame.i64s("out_expert_counts", output(&self.out_expert_counts), shape.n_all_experts)?;
        Ok(())
    }
}

/// One call entered by several threads.
struct Team {
    plan: *const sys::moe_plan,
    weights: *const sys::moe_weights,
    workspace: *mut sys::moe_workspace,
    args: sys::moe_forward_args,
    n_threads: i32,
}

// SAFETY: moe_forward_spmd is made to be entered by several threads with the same arguments.
unsafe impl Sync for Team {}

impl Team {
    fn enter(&self, index: i32) -> Result<()> {
        call!(moe_forward_spmd(self.plan, self.weights, self.workspace, &self.args, index, self.n_threads))
    }

    // Nobody enters before all threads are there: one that is missing would be waited for at the first barrier.
    fn run(&self) -> Result<()> {
        let gate = (Mutex::new(None), Condvar::new());
        let open = |go: bool| {
            *gate.0.lock().unwrap() = Some(go);
            gate.1.notify_all();
        };
        let wait = || {
            gate.1.wait_while(gate.0.lock().unwrap(), |go: &mut Option<bool>| go.is_none()).unwrap().unwrap()
        };
        let (wait, this) = (&wait, &self);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for index in 1..self.n_threads {
                let work = move || if wait() { this.enter(index) } else { Ok(()) };
                match std::thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        open(false);
                        return Err(Error::Argument { name: "n_threads", message: error.to_string() });
                    }
                }
            }
            open(true);
            let own = self.enter(0);
            let others = threads.into_iter().map(|thread| thread.join().expect("calls do not panic"));
            others.fold(own, Result::and)
        })
    }
}
