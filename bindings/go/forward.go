package moe

import "unsafe"

// ForwardArgs are moe_forward_args. Tokens is what X has rows. The routing is computed, or comes from Logits, from IDs, or from IDs
// and Weights, whichever are given. Arrays are memory of the plan's device: slices for a CPU plan, At for CUDA.
type ForwardArgs struct {
	X               Array // [T, hidden]
	Out             Array // [T, hidden]; PerSlot [T * top_k, latent]
	RouterInput     Array
	Logits          Array // [T, all experts] float32
	IDs             Array // [T, top_k] int32 or int64
	Weights         Array // [T, top_k] float32, BF16 or F16
	TokenIDs        Array // [T]
	UsesSecondBias  Array // [T] int8: which tokens the second selection bias chooses for
	ExpertMap       Array // [experts] int32
	NTokensDevice   Array // one int32
	PerSlot         bool
	Accumulate      bool
	OutLogits       Array
	OutIDs          Array // [T, top_k] int32
	OutWeights      Array // [T, top_k] float32
	OutExpertCounts Array // [all experts] int64
	Stream          unsafe.Pointer
	NThreads        int32 // CPU threads of this call at most; 0: those of the runtime
}

func (f *ForwardArgs) c(a *arguments) *moe_forward_args {
	shape := a.shape
	args := (*moe_forward_args)(a.memory.allocate(sizeof_moe_forward_args))
	args.struct_size = uint32(sizeof_moe_forward_args)
	a.required("X", f.X)
	a.required("Out", f.Out)
	if f.Weights.given() {
		a.required("IDs", f.IDs)
	}
	n := f.X.rowsOf(shape.Hidden)
	args.n_tokens, args.routing = int64(n), moe_routing(routingOf(f.Logits, f.IDs, f.Weights))
	args.x, args.x_row_stride = a.rows("X", f.X, n, shape.Hidden, shape.XType)
	args.router_input, args.router_input_row_stride =
		a.rows("RouterInput", f.RouterInput, n, shape.Hidden, shape.RouterInputType)
	logits, logitsStride := a.rows("Logits", f.Logits, n, shape.NAllExperts, TypeF32)
	args.logits, args.logits_row_stride = (*float32)(logits), logitsStride
	args.ids, args.ids_row_stride = a.rows("IDs", f.IDs, n, shape.TopK, idTypes...)
	args.ids_type = moe_type(f.IDs.typ)
	args.weights, args.weights_row_stride = a.rows("Weights", f.Weights, n, shape.TopK, TypeF32, TypeBF16, TypeF16)
	args.weights_type = moe_type(f.Weights.typ)
	args.token_ids = a.dense("TokenIDs", f.TokenIDs, n, false, idTypes...)
	args.token_ids_type = moe_type(f.TokenIDs.typ)
	args.uses_second_bias = (*int8)(a.dense("UsesSecondBias", f.UsesSecondBias, n, false, TypeI8))
	args.expert_map = (*int32)(a.dense("ExpertMap", f.ExpertMap, shape.NExperts, false, TypeI32))
	if f.ExpertMap.given() {
		args.n_expert_map = int32(shape.NExperts)
	}
	args.n_tokens_device = (*int32)(a.dense("NTokensDevice", f.NTokensDevice, 1, false, TypeI32))
	args.accumulate, args.stream, args.n_threads = flag(f.Accumulate), f.Stream, int32(f.NThreads)
	f.outputs(a, args, n)
	return args
}

func (f *ForwardArgs) outputs(a *arguments, args *moe_forward_args, n int64) {
	shape, width := a.shape, a.shape.OutWidth
	if f.PerSlot {
		args.out_layout, width = MOE_OUT_PER_SLOT, shape.TopK*shape.Latent
	}
	args.out, args.out_row_stride = a.output("Out", f.Out, n, width, shape.OutType)
	logits, logitsStride := a.output("OutLogits", f.OutLogits, n, shape.NAllExperts, TypeF32)
	args.out_logits, args.out_logits_row_stride = (*float32)(logits), logitsStride
	ids, idsStride := a.output("OutIDs", f.OutIDs, n, shape.TopK, TypeI32)
	args.out_ids, args.out_ids_row_stride = (*int32)(ids), idsStride
	weights, weightsStride := a.output("OutWeights", f.OutWeights, n, shape.TopK, TypeF32)
	args.out_weights, args.out_weights_row_stride = (*float32)(weights), weightsStride
	args.out_expert_counts = (*int64)(a.dense("OutExpertCounts", f.OutExpertCounts, shape.NAllExperts, true, TypeI64))
}

func trio(plan *Plan, weights *Weights, workspace *Workspace) []*Handle {
	return []*Handle{plan.base(), weights.base(), workspace.base()}
}

// Forward runs the whole layer. Of a CPU plan it returns when it is done, of a CUDA plan when the work is on the stream.
func Forward(plan *Plan, weights *Weights, workspace *Workspace, args *ForwardArgs) error {
	checked := newArguments(plan)
	desc := args.c(checked)
	return checked.run("moe_forward", trio(plan, weights, workspace), func(p []unsafe.Pointer) moe_status {
		return moe_forward((*moe_plan)(p[0]), (*moe_weights)(p[1]), (*moe_workspace)(p[2]), desc)
	})
}

// ForwardSPMD is Forward entered by nThreads goroutines with equal arguments but for threadIndex: each is held on a thread of its own,
// and they wait for each other. CPU plans only.
func ForwardSPMD(plan *Plan, weights *Weights, workspace *Workspace, args *ForwardArgs, threadIndex, nThreads int32) error {
	checked := newArguments(plan)
	checked.isShared = true
	desc := args.c(checked)
	return checked.run("moe_forward_spmd", trio(plan, weights, workspace), func(p []unsafe.Pointer) moe_status {
		return moe_forward_spmd((*moe_plan)(p[0]), (*moe_weights)(p[1]), (*moe_workspace)(p[2]), desc,
			int32(threadIndex), int32(nThreads))
	})
}
