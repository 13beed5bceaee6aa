package moe

import (
	"fmt"
	"unsafe"
)

// arguments checks arrays against the shape of a plan and collects what one call points to. The first error stays.
type arguments struct {
	memory   memory
	shape    Shape
	err      error
	isShared bool // other calls have the same arrays at the same time
}

func newArguments(plan *Plan) *arguments {
	made := &arguments{}
	if plan == nil {
		made.err = &ArgumentError{"plan", "is nil"}
		return made
	}
	made.shape, made.err = plan.Shape()
	return made
}

var idTypes = []Type{TypeI32, TypeI64}

// rows is the address and the stride of [rows, columns]; of no array NULL.
func (a *arguments) rows(name string, array Array, rows, columns int64, types ...Type) (unsafe.Pointer, int64) {
	return a.checked(name, array, rows, columns, false, types)
}

// output is the same for an array that is written.
func (a *arguments) output(name string, array Array, rows, columns int64, types ...Type) (unsafe.Pointer, int64) {
	return a.checked(name, array, rows, columns, true, types)
}

func (a *arguments) checked(name string, array Array, rows, columns int64, isOutput bool, types []Type) (unsafe.Pointer, int64) {
	if a.err != nil || !array.given() {
		return nil, 0
	}
	if array.isSlice && !a.shape.IsCPU {
		a.err = &ArgumentError{name, "is a slice; the plan wants memory of its device"}
	} else if array.isSlice && a.isShared && slicesAreCopied {
		a.err = &ArgumentError{name, "is a slice; before Go 1.21 threads can share only memory of C"}
	} else {
		a.err = array.check(name, rows, columns, types...)
	}
	if a.err != nil {
		return nil, 0
	}
	return array.at(&a.memory, isOutput), int64(array.stride)
}

// dense is for arrays whose rows have no stride.
func (a *arguments) dense(name string, array Array, elements int64, isOutput bool, types ...Type) unsafe.Pointer {
	if a.err == nil && array.hasGaps() {
		a.err = &ArgumentError{name, "must be dense"}
	}
	rows, columns := int64(1), elements
	if array.rows >= 0 {
		if a.err == nil && array.given() && array.length() != elements {
			a.err = &ArgumentError{name, fmt.Sprintf("has %d elements, must have %d", array.length(), elements)}
		}
		rows, columns = array.rows, array.columns
	}
	address, _ := a.checked(name, array, rows, columns, isOutput, types)
	return address
}

// required is an error where an array is not given.
func (a *arguments) required(name string, array Array) {
	if a.err == nil && !array.given() {
		a.err = &ArgumentError{name, "must be given"}
	}
}

// countOf is the rows of the first array given; columns[i] are those of arrays[i].
func countOf(arrays []Array, columns ...int64) int64 {
	for i, one := range arrays {
		if one.given() {
			return one.rowsOf(columns[i])
		}
	}
	return 0
}

func routingOf(logits, ids, weights Array) Routing {
	switch {
	case weights.given():
		return RoutingIDsAndWeights
	case ids.given():
		return RoutingIDs
	case logits.given():
		return RoutingLogits
	}
	return RoutingCompute
}

// run calls a function with the handles, unless the arguments are wrong, and gives the memory back.
func (a *arguments) run(name string, handles []*Handle, function func(p []unsafe.Pointer) moe_status) error {
	defer a.memory.free()
	if a.err != nil {
		return a.err
	}
	return using(handles, func(p []unsafe.Pointer) error {
		return call(name, func() moe_status { return function(p) })
	})
}
