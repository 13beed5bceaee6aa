package moe

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

func TestWrongArraysAreRefusedByName(t *testing.T) {
	shows(t, "BAD-01")
	g := openGolden(t, qwen3, nil)
	x, out, short := Of(g.x), Of(make([]float32, len(g.y))), Of(g.x[:g.hidden-1])
	rows, columns := int64(g.tokens), int64(g.hidden)
	shape, err := g.plan.Shape()
	must(t, err)
	double, experts := make([]float64, len(g.x)), shape.NAllExperts
	bad := []struct {
		field, words string
		args         ForwardArgs
	}{
		{"X", "must be given", ForwardArgs{Out: out}},
		{"Out", "must be given", ForwardArgs{X: x}},
		{"X", "elements", ForwardArgs{X: Of(g.x[:len(g.x)-1]), Out: out}},
		{"Out", "elements", ForwardArgs{X: x, Out: short}},
		{"IDs", "elements", ForwardArgs{X: x, Out: out, IDs: Of(g.ids[1:])}},
		{"X", "is f64, must be [f32]", ForwardArgs{X: Of(double), Out: out}},
		{"IDs", "is f32, must be [i32 i64]", ForwardArgs{X: x, Out: out, IDs: Of(g.weights)}},
		{"X", "must be", ForwardArgs{X: Strided(g.x, rows, columns-1, 0), Out: out}},
		{"X", "overlap", ForwardArgs{X: Strided(g.x, rows, columns, columns-1), Out: out}},
		{"X", "overlap", ForwardArgs{X: Strided(g.x, rows, columns, -columns), Out: out}},
		{"X", "do not fit", ForwardArgs{X: Strided(g.x, rows, columns, columns+1), Out: out}},
		{"X", "do not fit", ForwardArgs{X: Strided(g.x, rows, columns, math.MaxInt64), Out: out}},
		{"OutIDs", "elements", ForwardArgs{X: x, Out: out, OutIDs: Of(make([]int32, 1))}},
		{"OutExpertCounts", "elements", ForwardArgs{X: x, Out: out, OutExpertCounts: Of(make([]int64, 1))}},
		{"OutExpertCounts", "do not fit", ForwardArgs{X: x, Out: out, OutExpertCounts: Strided(make([]int64, 1), 1, experts, 0)}},
		{"OutExpertCounts", "do not fit", ForwardArgs{X: x, Out: out, OutExpertCounts: Strided(make([]int64, 1), experts, 1, 1)}},
		{"OutExpertCounts", "dense", ForwardArgs{X: x, Out: out, OutExpertCounts: Strided(make([]int64, 3*experts), experts, 1, 2)}},
		{"TokenIDs", "do not fit", ForwardArgs{X: x, Out: out, TokenIDs: Strided(make([]int32, 1), 1, rows, 0)}},
		{"TokenIDs", "must have", ForwardArgs{X: x, Out: out, TokenIDs: Strided(make([]int32, rows), 1<<62, 4, 0)}},
		{"IDs", "must be given", ForwardArgs{X: x, Out: out, Weights: Of(g.weights)}},
	}
	for i := range bad {
		err := Forward(g.plan, g.loaded, g.workspace, &bad[i].args)
		var refused *ArgumentError
		if !errors.As(err, &refused) || refused.Field != bad[i].field || !strings.Contains(err.Error(), bad[i].words) {
			t.Errorf("%v instead of %s: %s", err, bad[i].field, bad[i].words)
		}
	}
	offsets := Strided(make([]int64, 1), 1, shape.NLocalExperts+1, 0)
	err = Experts(g.plan, g.loaded, g.workspace, &ExpertsArgs{InLayout: InSorted, X: x, Out: out, Offsets: offsets})
	mustBe(t, err, ErrInvalidArgument, "Offsets", "do not fit")
	_, err = Dense(RoleGate, Of(g.ids), 1, 1)
	mustBe(t, err, ErrInvalidArgument, "data", "i32")
	_, err = Quantize(RoleGate, g.x, 1, 1, Format{}, nil)
	mustBe(t, err, ErrInvalidArgument, "matrix")
}

func TestStridedRowsAreTakenWhereTheyLie(t *testing.T) {
	shows(t, "BAD-01")
	g := openGolden(t, qwen3, nil)
	stride := g.hidden + 3
	nan := float32(math.NaN())
	x, out := filled(g.tokens*stride, nan), filled(g.tokens*stride, nan)
	for row := 0; row < g.tokens; row++ {
		copy(x[row*stride:], g.x[row*g.hidden:(row+1)*g.hidden])
	}
	rows, columns := int64(g.tokens), int64(g.hidden)
	args := &ForwardArgs{X: Strided(x, rows, columns, int64(stride)), Out: Strided(out, rows, columns, int64(stride))}
	must(t, Forward(g.plan, g.loaded, g.workspace, args))
	var found []float32
	for row := 0; row < g.tokens; row++ {
		found = append(found, out[row*stride:row*stride+g.hidden]...)
		for _, gap := range out[row*stride+g.hidden : (row+1)*stride] {
			if !math.IsNaN(float64(gap)) {
				t.Fatal("wrote between the rows")
			}
		}
	}
	g.near(t, found, 1e-5)
}

// Columns of one buffer side by side may be written by several calls at once: here the gap changes while a call runs.
func TestGapsOfOutputsAreNotTouched(t *testing.T) {
	var gaps []*float32
	parallelFor := func(n int, task func(int)) {
		for _, gap := range gaps {
			*gap++
		}
		for i := 0; i < n; i++ {
			task(i)
		}
	}
	means := newRuntime(t, &RuntimeOptions{ParallelFor: parallelFor, NThreads: 2})
	defer means.Close()
	g := openGolden(t, qwen3, means)
	rows, columns, stride := int64(g.tokens), int64(g.hidden), int64(g.hidden)+3
	out := make([]float32, rows*stride)
	for i := range out {
		if int64(i)%stride >= columns {
			gaps = append(gaps, &out[i])
		}
	}
	must(t, Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of(g.x), Out: Strided(out, rows, columns, stride)}))
	for _, gap := range gaps {
		if *gap == 0 || *gap != *gaps[0] {
			t.Fatalf("%g between the rows, of %g", *gap, *gaps[0])
		}
	}
	var found []float32
	for row := int64(0); row < rows; row++ {
		found = append(found, out[row*stride:row*stride+columns]...)
	}
	g.near(t, found, 1e-5)
}

func TestIDsOutsideTheLayerAreSkippedAndReported(t *testing.T) {
	data := shows(t, "BAD-02")
	g := openGolden(t, qwen3, nil)
	ids, weights := make([]int64, len(g.ids)), append([]float32(nil), g.weights...)
	for i, id := range g.ids {
		ids[i] = int64(id)
	}
	ids[0], weights[0] = 1<<40, 5
	without := append([]int64(nil), ids...)
	without[0] = -1
	status := func(faults Faults, skipped int64) {
		t.Helper()
		if found, n, err := g.workspace.Status(); found != faults || n != skipped || err != nil {
			t.Fatal(found, n, err)
		}
	}
	found := g.forward(t, &ForwardArgs{IDs: Of(ids), Weights: Of(weights)})
	status(Faults(data["fault"].(int64)), 1)
	status(0, 0)
	if !same(found, g.forward(t, &ForwardArgs{IDs: Of(without), Weights: Of(weights)})) || FaultIDOutOfRange != 1 {
		t.Fatal("the others do not count")
	}
	status(0, 0)
}

func TestALayerTellsOfIDsOutside(t *testing.T) {
	data := shows(t, "BAD-02")
	g := openGolden(t, qwen3, nil)
	layer, err := OpenLayer(filepath.Join(root, qwen3), nil)
	must(t, err)
	defer layer.Close()
	ids := append([]int32(nil), g.ids...)
	ids[0] = 1 << 30
	run := func(ids []int32) ([]float32, error) {
		out := make([]float32, len(g.x))
		err := layer.Run(&ForwardArgs{X: Of(g.x), Out: Of(out), IDs: Of(ids), Weights: Of(g.weights)})
		return out, err
	}
	found, err := run(ids)
	var fault *FaultError
	if !errors.As(err, &fault) || fault.Faults != Faults(data["fault"].(int64)) || fault.NSkipped != 1 {
		t.Fatal(err)
	}
	must(t, layer.Faults()) // it was told
	ids[0] = -1
	wanted, err := run(ids)
	must(t, err)
	if !same(found, wanted) {
		t.Fatal("the others do not count")
	}
}

func TestRowsMoreThan2ToThe31ElementsApart(t *testing.T) {
	data := shows(t, "BIG-01")
	g := openGolden(t, data["fixture"].(string), nil)
	stride := data["row_stride"].(int64)
	size := 4 * (int(stride) + g.hidden)
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skip("no sparse mapping of 8 GiB here: ", err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	far := unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), size/4)
	copy(far, g.x[:g.hidden])
	copy(far[stride:], g.x[g.hidden:2*g.hidden])
	near := make([]float32, 2*g.hidden)
	must(t, Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of(g.x[:2*g.hidden]), Out: Of(near)}))
	arrays := []Array{At(unsafe.Pointer(&far[0]), TypeF32, 2, int64(g.hidden), stride)}
	if !slicesAreCopied {
		arrays = append(arrays, Strided(far, 2, int64(g.hidden), stride))
	}
	for _, x := range arrays {
		out := make([]float32, 2*g.hidden)
		must(t, Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: x, Out: Of(out)}))
		if !same(out, near) || relativeL2(t, out, g.y[:2*g.hidden], 2) > 1e-5 {
			t.Fatal("rows far apart give something else")
		}
	}
}

func TestCountsBeyond2ToThe31(t *testing.T) {
	data := shows(t, "BIG-02")
	format, err := FormatByName(data["format"].(string))
	must(t, err)
	rows, columns := data["rows"].(int64), data["columns"].(int64)
	if bytes, _, err := format.Size(rows, columns); err != nil || bytes != uint64(data["data_bytes"].(int64)) {
		t.Fatal(bytes, err)
	}
	many := data["overflowing_rows"].(int64)
	_, _, err = format.Size(many, columns)
	mustBe(t, err, ErrInvalidArgument, fmt.Sprint(many))
	g := openGolden(t, qwen3, nil)
	options := g.options(g.checkpoint)
	options.MaxTokens = data["max_tokens"].(int64)
	mustBe(t, Supports(options), ErrInvalidArgument, fmt.Sprint("max_tokens is ", options.MaxTokens))
	_, err = NewPlan(options)
	mustBe(t, err, ErrInvalidArgument, fmt.Sprint("max_tokens is ", options.MaxTokens))
}
