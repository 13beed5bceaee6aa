// Two experts of a float32 layer, one token, the answer known by hand.
//
// Expert e has rows of ones scaled by s_e in gate and up, so gate x = up x = s_e * sum(x) in all 16 features, and a down
// matrix of ones: every output is 16 silu(a) a with a = s_e * sum(x). Ids and weights are given.
package main

// #include <stdlib.h>
// #include "moe/moe.h"
import "C"

import (
	"fmt"
	"math"
	"os"
	"unsafe"
)

const (
	hidden       = 32
	intermediate = 16
)

var (
	scales  = []float32{0.5, -0.25}
	weights = []float32{0.75, 2.0}
)

func check(status C.moe_status, what string) {
	if status != C.MOE_OK {
		name := C.GoString(C.moe_status_name(status))
		fmt.Fprintf(os.Stderr, "%s: %s: %s\n", what, name, C.GoString(C.moe_last_error()))
		os.Exit(1)
	}
}

// Structs that point to other memory live on the C side: cgo lets no Go pointer into memory that C is given.
func allocate(bytes C.size_t) unsafe.Pointer { return C.calloc(1, bytes) }

func floats(values []float32) unsafe.Pointer {
	memory := allocate(C.size_t(4 * len(values)))
	for i, value := range values {
		*(*float32)(unsafe.Pointer(uintptr(memory) + uintptr(4*i))) = value
	}
	return memory
}

func stack(role C.moe_role, format *C.moe_format, rows, columns int, data unsafe.Pointer) *C.moe_tensor {
	tensor := (*C.moe_tensor)(allocate(C.sizeof_moe_tensor))
	tensor.struct_size = C.sizeof_moe_tensor
	tensor.role = role
	tensor.expert = C.MOE_ALL_EXPERTS
	tensor.format = format
	tensor.n_experts = 2
	tensor.rows = C.int64_t(rows)
	tensor.columns = C.int64_t(columns)
	tensor.data = data
	tensor.data_bytes = C.uint64_t(2 * rows * columns * 4)
	return tensor
}

func makePlan(format *C.moe_format) *C.moe_plan {
	layer := (*C.moe_layer_desc)(allocate(C.sizeof_moe_layer_desc))
	layer.struct_size = C.sizeof_moe_layer_desc
	layer.hidden = hidden
	layer.intermediate = intermediate
	layer.n_experts = 2
	layer.top_k = 2
	layer.activation = C.MOE_ACTIVATION_SILU
	layer.is_gated = 1

	formats := (*[C.MOE_ROLE_COUNT]*C.moe_format)(allocate(C.MOE_ROLE_COUNT * C.size_t(unsafe.Sizeof(format))))
	formats[C.MOE_ROLE_GATE] = format
	formats[C.MOE_ROLE_UP] = format
	formats[C.MOE_ROLE_DOWN] = format
	desc := (*C.moe_plan_desc)(allocate(C.sizeof_moe_plan_desc))
	desc.struct_size = C.sizeof_moe_plan_desc
	desc.device = C.MOE_DEVICE_CPU
	desc.x_type = C.MOE_TYPE_F32
	desc.layer = layer
	desc.formats = &formats[0]
	desc.n_formats = C.MOE_ROLE_COUNT
	desc.max_tokens = 1
	var plan *C.moe_plan
	check(C.moe_plan_create(nil, desc, &plan), "plan_create")
	return plan
}

func loadWeights(plan *C.moe_plan, format *C.moe_format) *C.moe_weights {
	rows := make([]float32, 2*intermediate*hidden)
	ones := make([]float32, 2*intermediate*hidden)
	for i := range rows {
		rows[i] = scales[i/(intermediate*hidden)]
		ones[i] = 1
	}
	tensors := (*[3]*C.moe_tensor)(allocate(3 * C.size_t(unsafe.Sizeof(plan))))
	tensors[0] = stack(C.MOE_ROLE_GATE, format, intermediate, hidden, floats(rows))
	tensors[1] = stack(C.MOE_ROLE_UP, format, intermediate, hidden, floats(rows))
	tensors[2] = stack(C.MOE_ROLE_DOWN, format, hidden, intermediate, floats(ones))
	desc := (*C.moe_weights_desc)(allocate(C.sizeof_moe_weights_desc))
	desc.struct_size = C.sizeof_moe_weights_desc
	desc.tensors = &tensors[0]
	desc.n_tensors = 3
	var loaded *C.moe_weights
	check(C.moe_weights_load(plan, desc, &loaded), "weights_load")
	return loaded
}

func forward(x []float32) []float32 {
	format := (*C.moe_format)(allocate(C.sizeof_moe_format))
	format.struct_size = C.sizeof_moe_format
	name := C.CString("f32")
	check(C.moe_format_by_name(name, format), "format_by_name")
	plan := makePlan(format)
	loaded := loadWeights(plan, format)
	workspaceDesc := (*C.moe_workspace_desc)(allocate(C.sizeof_moe_workspace_desc))
	workspaceDesc.struct_size = C.sizeof_moe_workspace_desc
	workspaceDesc.plan = plan
	var workspace *C.moe_workspace
	check(C.moe_workspace_create(nil, workspaceDesc, &workspace), "workspace_create")

	ids := (*[2]int32)(allocate(8))
	ids[0], ids[1] = 0, 1
	out := allocate(4 * hidden)
	args := (*C.moe_forward_args)(allocate(C.sizeof_moe_forward_args))
	args.struct_size = C.sizeof_moe_forward_args
	args.routing = C.MOE_ROUTING_IDS_AND_WEIGHTS
	args.n_tokens = 1
	args.x = floats(x)
	args.ids = unsafe.Pointer(ids)
	args.weights = floats(weights)
	args.out = out
	check(C.moe_forward(plan, loaded, workspace, args), "forward")
	result := make([]float32, hidden)
	copy(result, (*[hidden]float32)(out)[:])

	C.moe_workspace_destroy(workspace)
	C.moe_weights_destroy(loaded)
	C.moe_plan_destroy(plan)
	return result
}

func main() {
	x := make([]float32, hidden)
	sum := 0.0
	for h := range x {
		x[h] = float32(h) / 128
		sum += float64(x[h])
	}
	want := 0.0
	for e := range scales {
		a := float64(scales[e]) * sum
		want += float64(weights[e]) * intermediate * a / (1 + math.Exp(-a)) * a
	}
	for _, value := range forward(x) {
		if !(math.Abs(float64(value)-want) <= 1e-5*math.Abs(want)) {
			fmt.Fprintf(os.Stderr, "%v instead of %v\n", value, want)
			os.Exit(1)
		}
	}
	fmt.Printf("go client: %v as by hand\n", want)
}
