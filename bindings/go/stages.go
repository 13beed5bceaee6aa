package moe

import "unsafe"

// RouteArgs are moe_route_args: X, RouterInput or Logits -> OutIDs and OutWeights. With IDs given only weights are new.
type RouteArgs struct {
	X              Array // [T, hidden]
	RouterInput    Array
	Logits         Array // [T, all experts] float32
	IDs            Array // [T, top_k]
	TokenIDs       Array // [T]
	UsesSecondBias Array // [T] int8, as in ForwardArgs
	NTokensDevice  Array
	OutIDs         Array // [T, top_k] int32
	OutWeights     Array // [T, top_k] float32
	OutLogits      Array
	Stream         unsafe.Pointer
	NThreads       int32 // CPU threads of this call at most; 0: those of the runtime
}

// Route runs the router alone.
func Route(plan *Plan, weights *Weights, workspace *Workspace, args *RouteArgs) error {
	a := newArguments(plan)
	desc := args.c(a)
	return a.run("moe_route", trio(plan, weights, workspace), func(p []unsafe.Pointer) moe_status {
		return moe_route((*moe_plan)(p[0]), (*moe_weights)(p[1]), (*moe_workspace)(p[2]), desc)
	})
}

func (r *RouteArgs) c(a *arguments) *moe_route_args {
	shape := a.shape
	args := (*moe_route_args)(a.memory.allocate(sizeof_moe_route_args))
	args.struct_size = uint32(sizeof_moe_route_args)
	a.required("OutWeights", r.OutWeights)
	if !r.IDs.given() {
		a.required("OutIDs", r.OutIDs)
	}
	n := countOf([]Array{r.X, r.RouterInput, r.Logits}, shape.Hidden, shape.Hidden, shape.NAllExperts)
	args.n_tokens, args.routing = int64(n), moe_routing(routingOf(r.Logits, r.IDs, Array{}))
	args.x, args.x_row_stride = a.rows("X", r.X, n, shape.Hidden, shape.XType)
	args.router_input, args.router_input_row_stride =
		a.rows("RouterInput", r.RouterInput, n, shape.Hidden, shape.RouterInputType)
	logits, logitsStride := a.rows("Logits", r.Logits, n, shape.NAllExperts, TypeF32)
	args.logits, args.logits_row_stride = (*float32)(logits), logitsStride
	args.ids, args.ids_row_stride = a.rows("IDs", r.IDs, n, shape.TopK, idTypes...)
	args.ids_type = moe_type(r.IDs.typ)
	args.token_ids = a.dense("TokenIDs", r.TokenIDs, n, false, idTypes...)
	args.token_ids_type = moe_type(r.TokenIDs.typ)
	args.uses_second_bias = (*int8)(a.dense("UsesSecondBias", r.UsesSecondBias, n, false, TypeI8))
	args.n_tokens_device = (*int32)(a.dense("NTokensDevice", r.NTokensDevice, 1, false, TypeI32))
	ids, idsStride := a.output("OutIDs", r.OutIDs, n, shape.TopK, TypeI32)
	args.out_ids, args.out_ids_row_stride = (*int32)(ids), idsStride
	weights, weightsStride := a.output("OutWeights", r.OutWeights, n, shape.TopK, TypeF32)
	args.out_weights, args.out_weights_row_stride = (*float32)(weights), weightsStride
	outLogits, outLogitsStride := a.output("OutLogits", r.OutLogits, n, shape.NAllExperts, TypeF32)
	args.out_logits, args.out_logits_row_stride = (*float32)(outLogits), outLogitsStride
	args.stream, args.n_threads = r.Stream, int32(r.NThreads)
	return args
}

// DispatchArgs are moe_dispatch_args. The row capacity is the length of OutRowIDs.
type DispatchArgs struct {
	IDs           Array // [T, top_k] global ids
	BlockRows     int32 // 0 or 1: packed
	ExpertMap     Array
	NTokensDevice Array
	OutOffsets    Array // [local experts + 1] int64
	OutCounts     Array // [local experts] int64, or none
	OutRowIDs     Array // [capacity] int32: what lies beyond the last offset is undefined
	Stream        unsafe.Pointer
}

// Dispatch sorts the slots of tokens by expert.
func Dispatch(plan *Plan, workspace *Workspace, args *DispatchArgs) error {
	a := newArguments(plan)
	shape := a.shape
	desc := (*moe_dispatch_args)(a.memory.allocate(sizeof_moe_dispatch_args))
	desc.struct_size = uint32(sizeof_moe_dispatch_args)
	a.required("IDs", args.IDs)
	a.required("OutOffsets", args.OutOffsets)
	n := args.IDs.rowsOf(shape.TopK)
	desc.n_tokens, desc.block_rows, desc.stream = int64(n), int32(args.BlockRows), args.Stream
	desc.ids, desc.ids_row_stride = a.rows("IDs", args.IDs, n, shape.TopK, idTypes...)
	desc.ids_type = moe_type(args.IDs.typ)
	desc.expert_map = (*int32)(a.dense("ExpertMap", args.ExpertMap, shape.NExperts, false, TypeI32))
	if args.ExpertMap.given() {
		desc.n_expert_map = int32(shape.NExperts)
	}
	desc.n_tokens_device = (*int32)(a.dense("NTokensDevice", args.NTokensDevice, 1, false, TypeI32))
	desc.out_offsets = (*int64)(a.dense("OutOffsets", args.OutOffsets, shape.NLocalExperts+1, true, TypeI64))
	desc.out_counts = (*int64)(a.dense("OutCounts", args.OutCounts, shape.NLocalExperts, true, TypeI64))
	desc.row_capacity = int64(args.OutRowIDs.length())
	desc.out_row_ids = (*int32)(a.dense("OutRowIDs", args.OutRowIDs, args.OutRowIDs.length(), true, TypeI32))
	return a.run("moe_dispatch", []*Handle{plan.base(), workspace.base()}, func(p []unsafe.Pointer) moe_status {
		return moe_dispatch((*moe_plan)(p[0]), (*moe_workspace)(p[1]), desc)
	})
}

// GatherArgs are moe_gather_args. Offsets, Counts and RowIDs are those of Dispatch.
type GatherArgs struct {
	X             Array // [T, hidden], or [T, latent] with XIsLatent, of the plan's type of x
	XIsLatent     bool
	Offsets       Array // [local experts + 1] int64
	Counts        Array // [local experts] int64, or none
	RowIDs        Array // [rows] int32
	Out           Array // [rows, hidden or latent]; rows without a token are not written
	Weights       Array // [T, top_k] float32, with OutRowWeights
	OutRowTokens  Array // [rows] int32, or none: -1 where there is no token
	OutRowWeights Array // [rows] float32, or none
	Stream        unsafe.Pointer
	NThreads      int32
}

// Gather copies rows of x into the order of a dispatch.
func Gather(plan *Plan, workspace *Workspace, args *GatherArgs) error {
	a := newArguments(plan)
	shape := a.shape
	desc := (*moe_gather_args)(a.memory.allocate(sizeof_moe_gather_args))
	desc.struct_size = uint32(sizeof_moe_gather_args)
	a.required("X", args.X)
	a.required("RowIDs", args.RowIDs)
	width := shape.Hidden
	if args.XIsLatent {
		width, desc.x_is_latent = shape.Latent, 1
	}
	n, rows := args.X.rowsOf(width), args.RowIDs.length()
	desc.n_tokens, desc.n_rows = int64(n), int64(rows)
	desc.x, desc.x_row_stride = a.rows("X", args.X, n, width, shape.XType)
	desc.offsets = (*int64)(a.dense("Offsets", args.Offsets, shape.NLocalExperts+1, false, TypeI64))
	desc.counts = (*int64)(a.dense("Counts", args.Counts, shape.NLocalExperts, false, TypeI64))
	desc.row_ids = (*int32)(a.dense("RowIDs", args.RowIDs, rows, false, TypeI32))
	desc.out, desc.out_row_stride = a.output("Out", args.Out, rows, width, shape.XType)
	weights, stride := a.rows("Weights", args.Weights, n, shape.TopK, TypeF32)
	desc.weights, desc.weights_row_stride = (*float32)(weights), stride
	desc.out_row_tokens = (*int32)(a.dense("OutRowTokens", args.OutRowTokens, rows, true, TypeI32))
	desc.out_row_weights = (*float32)(a.dense("OutRowWeights", args.OutRowWeights, rows, true, TypeF32))
	desc.stream, desc.n_threads = args.Stream, int32(args.NThreads)
	return a.run("moe_gather", []*Handle{plan.base(), workspace.base()}, func(p []unsafe.Pointer) moe_status {
		return moe_gather((*moe_plan)(p[0]), (*moe_workspace)(p[1]), desc)
	})
}

// ExpertsArgs are moe_experts_args; the layouts are those of the table above moe_experts in moe.h.
type ExpertsArgs struct {
	InLayout             InLayout
	OutLayout            OutLayout
	X                    Array // InTokens [T, hidden or latent]; InSorted [rows, .]; InBatched [local experts * capacity, .]
	Out                  Array
	NTokens              int64 // sorted rows with an output by token; else X says it
	XIsLatent            bool
	StopBeforeActivation bool
	IDs                  Array
	Weights              Array // [T, top_k] float32
	Offsets              Array // [local experts + 1] int64
	Counts               Array // [local experts] int64
	RowIDs               Array // [rows] int32
	RowWeights           Array // [rows] float32
	ExpertMap            Array
	NTokensDevice        Array
	Accumulate           bool
	Stream               unsafe.Pointer
	NThreads             int32 // CPU threads of this call at most; 0: those of the runtime
}

// Experts runs the experts alone.
func Experts(plan *Plan, weights *Weights, workspace *Workspace, args *ExpertsArgs) error {
	a := newArguments(plan)
	desc := args.c(a)
	return a.run("moe_experts", trio(plan, weights, workspace), func(p []unsafe.Pointer) moe_status {
		return moe_experts((*moe_plan)(p[0]), (*moe_weights)(p[1]), (*moe_workspace)(p[2]), desc)
	})
}

func (e *ExpertsArgs) c(a *arguments) *moe_experts_args {
	shape := a.shape
	args := (*moe_experts_args)(a.memory.allocate(sizeof_moe_experts_args))
	args.struct_size = uint32(sizeof_moe_experts_args)
	a.required("X", e.X)
	a.required("Out", e.Out)
	width := shape.Hidden
	if e.XIsLatent {
		width = shape.Latent
	}
	n, rows := e.counts(args, shape, width)
	args.in_layout, args.out_layout = moe_in_layout(e.InLayout), moe_out_layout(e.OutLayout)
	args.stop_before_activation, args.x_is_latent = flag(e.StopBeforeActivation), flag(e.XIsLatent)
	args.x, args.x_row_stride = a.rows("X", e.X, e.X.rowsOf(width), width, shape.XType)
	args.ids, args.ids_row_stride = a.rows("IDs", e.IDs, n, shape.TopK, idTypes...)
	args.ids_type = moe_type(e.IDs.typ)
	weights, weightsStride := a.rows("Weights", e.Weights, n, shape.TopK, TypeF32)
	args.weights, args.weights_row_stride = (*float32)(weights), weightsStride
	args.expert_map = (*int32)(a.dense("ExpertMap", e.ExpertMap, shape.NExperts, false, TypeI32))
	if e.ExpertMap.given() {
		args.n_expert_map = int32(shape.NExperts)
	}
	args.n_tokens_device = (*int32)(a.dense("NTokensDevice", e.NTokensDevice, 1, false, TypeI32))
	args.offsets = (*int64)(a.dense("Offsets", e.Offsets, shape.NLocalExperts+1, false, TypeI64))
	args.counts = (*int64)(a.dense("Counts", e.Counts, shape.NLocalExperts, false, TypeI64))
	args.row_ids = (*int32)(a.dense("RowIDs", e.RowIDs, rows, false, TypeI32))
	args.row_weights = (*float32)(a.dense("RowWeights", e.RowWeights, rows, false, TypeF32))
	e.output(a, args, n, rows)
	return args
}

// counts are the tokens and the rows of a call.
func (e *ExpertsArgs) counts(args *moe_experts_args, shape Shape, width int64) (n, rows int64) {
	n, rows = e.NTokens, e.X.rowsOf(width)
	switch e.InLayout {
	case InTokens:
		n, rows = rows, e.RowIDs.length()
	case InBatched:
		if shape.NLocalExperts > 0 {
			args.batch_capacity = int64(rows / shape.NLocalExperts)
		}
	}
	args.n_tokens, args.n_rows = int64(n), int64(rows)
	if e.InLayout == InBatched && !e.RowIDs.given() && !e.RowWeights.given() {
		args.n_rows = 0
	}
	return n, rows
}

func (e *ExpertsArgs) output(a *arguments, args *moe_experts_args, n, rows int64) {
	width := a.shape.Latent
	if e.StopBeforeActivation {
		width = a.shape.NFeatures
	}
	switch e.OutLayout {
	case OutReduced:
		rows = n
	case OutPerSlot:
		rows, width = n, width*a.shape.TopK
	}
	if e.InLayout == InBatched && a.err == nil && rows%a.shape.NLocalExperts != 0 {
		a.err = &ArgumentError{"X", "must have as many rows for every local expert"}
	}
	args.out, args.out_row_stride = a.output("Out", e.Out, rows, width, a.shape.OutType)
	args.accumulate, args.stream, args.n_threads = flag(e.Accumulate), e.Stream, int32(e.NThreads)
}

// CombineArgs are moe_combine_args. Rows are [T, top_k * latent], or with RowIDs [rows, latent] sorted.
type CombineArgs struct {
	Rows          Array
	RowIDs        Array // [rows] int32
	IDs           Array // [T, top_k]
	Weights       Array // [T, top_k] float32
	X             Array // [T, hidden], for identity experts
	Out           Array // [T, latent]
	NTokensDevice Array
	Accumulate    bool
	Stream        unsafe.Pointer
	NThreads      int32 // CPU threads of this call at most; 0: those of the runtime
}

// Combine adds the rows of each token.
func Combine(plan *Plan, workspace *Workspace, args *CombineArgs) error {
	a := newArguments(plan)
	shape := a.shape
	desc := (*moe_combine_args)(a.memory.allocate(sizeof_moe_combine_args))
	desc.struct_size = uint32(sizeof_moe_combine_args)
	a.required("Rows", args.Rows)
	a.required("IDs", args.IDs)
	a.required("Out", args.Out)
	n, rows, width := args.IDs.rowsOf(shape.TopK), args.IDs.rowsOf(shape.TopK), shape.TopK*shape.Latent
	if args.RowIDs.given() {
		rows, width = args.RowIDs.length(), shape.Latent
		desc.rows_layout, desc.n_rows = MOE_IN_SORTED, int64(rows)
	}
	desc.n_tokens, desc.accumulate = int64(n), flag(args.Accumulate)
	desc.stream, desc.n_threads = args.Stream, int32(args.NThreads)
	desc.rows, desc.rows_row_stride = a.rows("Rows", args.Rows, rows, width, shape.OutType)
	desc.row_ids = (*int32)(a.dense("RowIDs", args.RowIDs, rows, false, TypeI32))
	desc.ids, desc.ids_row_stride = a.rows("IDs", args.IDs, n, shape.TopK, idTypes...)
	desc.ids_type = moe_type(args.IDs.typ)
	weights, stride := a.rows("Weights", args.Weights, n, shape.TopK, TypeF32)
	desc.weights, desc.weights_row_stride = (*float32)(weights), stride
	desc.x, desc.x_row_stride = a.rows("X", args.X, n, shape.Hidden, shape.XType)
	desc.n_tokens_device = (*int32)(a.dense("NTokensDevice", args.NTokensDevice, 1, false, TypeI32))
	desc.out, desc.out_row_stride = a.output("Out", args.Out, n, shape.Latent, shape.OutType)
	return a.run("moe_combine", []*Handle{plan.base(), workspace.base()}, func(p []unsafe.Pointer) moe_status {
		return moe_combine((*moe_plan)(p[0]), (*moe_workspace)(p[1]), desc)
	})
}

// FinishArgs are moe_finish_args.
type FinishArgs struct {
	Parts         FinishParts // 0: all
	Routed        Array       // [T, latent]
	X             Array       // [T, hidden]
	IDs           Array
	Weights       Array // [T, top_k] float32
	Out           Array // [T, hidden]
	NTokensDevice Array
	Accumulate    bool
	Stream        unsafe.Pointer
	NThreads      int32 // CPU threads of this call at most; 0: those of the runtime
}

// Finish adds what must be done once after the sum over slices.
func Finish(plan *Plan, weights *Weights, workspace *Workspace, args *FinishArgs) error {
	a := newArguments(plan)
	shape := a.shape
	desc := (*moe_finish_args)(a.memory.allocate(sizeof_moe_finish_args))
	desc.struct_size = uint32(sizeof_moe_finish_args)
	a.required("Out", args.Out)
	n := countOf([]Array{args.Routed, args.X}, shape.Latent, shape.Hidden)
	desc.n_tokens, desc.parts = int64(n), uint32(args.Parts)
	desc.accumulate, desc.stream, desc.n_threads = flag(args.Accumulate), args.Stream, int32(args.NThreads)
	desc.routed, desc.routed_row_stride = a.rows("Routed", args.Routed, n, shape.Latent, shape.OutType)
	desc.x, desc.x_row_stride = a.rows("X", args.X, n, shape.Hidden, shape.XType)
	desc.ids, desc.ids_row_stride = a.rows("IDs", args.IDs, n, shape.TopK, idTypes...)
	desc.ids_type = moe_type(args.IDs.typ)
	given, stride := a.rows("Weights", args.Weights, n, shape.TopK, TypeF32)
	desc.weights, desc.weights_row_stride = (*float32)(given), stride
	desc.n_tokens_device = (*int32)(a.dense("NTokensDevice", args.NTokensDevice, 1, false, TypeI32))
	desc.out, desc.out_row_stride = a.output("Out", args.Out, n, shape.Hidden, shape.OutType)
	return a.run("moe_finish", trio(plan, weights, workspace), func(p []unsafe.Pointer) moe_status {
		return moe_finish((*moe_plan)(p[0]), (*moe_weights)(p[1]), (*moe_workspace)(p[2]), desc)
	})
}
