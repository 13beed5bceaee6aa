package moe

import (
	"runtime"
	"testing"
)

func named(t testing.TB, name string) Format {
	t.Helper()
	format, err := FormatByName(name)
	must(t, err)
	return format
}

func TestTheElementTypeIsTheFormats(t *testing.T) {
	floats, bytes := Of(make([]float32, 32*32)), make([]uint8, 4*32*32)
	words := Of(make([]int32, 32*32))
	nvfp4, mxfp4, kbit := named(t, "nvfp4"), named(t, "mxfp4"), named(t, "kbit4_f32")
	scaled := func(format Format, scales Array) *Tensor {
		return &Tensor{Role: RoleGate, Format: format, Rows: 32, Columns: 32, Data: Of(bytes), Scales: scales}
	}
	refused := func(tensor *Tensor, name, words string) {
		t.Helper()
		_, err := tensor.Dequantize(0)
		mustBe(t, err, ErrInvalidArgument, name, words, "must be [")
	}
	passes := func(tensor *Tensor) {
		t.Helper()
		if err := tensor.checkArrays(); err != nil {
			t.Error(err)
		}
	}
	for name, right := range map[string]Array{
		"f32": floats, "bf16": Of(make([]BF16, 32*32)), "f16": Of(make([]F16, 32*32)),
	} {
		tensor := func(data Array) *Tensor {
			return &Tensor{Role: RoleGate, Format: named(t, name), Rows: 32, Columns: 32, Data: data}
		}
		passes(tensor(right))
		passes(tensor(Of(bytes)))
		_, err := tensor(right).Dequantize(0)
		must(t, err)
		refused(tensor(Of(make([]float64, 32*32))), "data", "is f64")
		refused(tensor(words), "data", "is i32")
		each := tensor(Array{})
		each.DataPerExpert = []Array{right, Of(make([]float64, 32*32))}
		refused(each, "data_per_expert", "is f64")
		if name != "f32" {
			refused(tensor(floats), "data", "is f32")
		}
	}
	refused(&Tensor{Role: RoleGate, Format: nvfp4, Rows: 32, Columns: 32, Data: floats}, "data", "is f32")
	refused(scaled(nvfp4, floats), "scales", "is f32")
	refused(scaled(mxfp4, Of(make([]F16, 32))), "scales", "is f16")
	passes(scaled(mxfp4, Of(bytes[:32])))
	passes(scaled(kbit, floats))
	refused(scaled(kbit, Of(make([]BF16, 32))), "scales", "is bf16")
	passes(&Tensor{Role: RoleGate, Format: kbit, Rows: 32, Columns: 32, Data: words})
	gptq := Format{Type: TypeInt, Bits: 4, ScaleType: TypeF16, Packing: PackingGPTQ, ZeroPoint: ZeroPointPacked}
	passes(&Tensor{Role: RoleGate, Format: gptq, Data: words, Scales: Of(make([]F16, 1)), ZeroPoints: words})
	refused(&Tensor{Role: RoleGate, Format: gptq, Rows: 1, Columns: 1, Data: words, ZeroPoints: floats}, "zero_points", "is f32")
}

// Rows of a matrix may lie in a larger one: the stride of the array is that of the tensor.
func TestRowsOfATensorMayHaveGaps(t *testing.T) {
	const experts, rows, columns, stride = 2, 32, 48, 50
	values, wide := make([]float32, experts*rows*columns), filled(experts*rows*stride, float32(1e9))
	for i := range values {
		values[i] = float32(i)
		wide[i/columns*stride+i%columns] = float32(i)
	}
	same := func(tensor *Tensor, expert int64) {
		t.Helper()
		found, err := tensor.Dequantize(expert)
		must(t, err)
		wanted := values[expert*rows*columns:]
		for i := range found {
			if found[i] != wanted[i] {
				t.Fatalf("[%d] is %g, must be %g", i, found[i], wanted[i])
			}
		}
	}
	stack, err := Dense(RoleGate, Strided(wide, experts*rows, columns, stride), rows, columns)
	must(t, err)
	if stack.NExperts != experts {
		t.Fatal(stack.NExperts)
	}
	same(stack, 0)
	same(stack, 1)
	first := Strided(wide[:rows*stride], rows, columns, stride)
	one, err := Dense(RoleGate, first, rows, columns)
	must(t, err)
	one.Expert = 0
	same(one, 0)
	one.RowStride = 4 * stride
	same(one, 0)
	each := &Tensor{Role: RoleGate, Expert: AllExperts, Format: named(t, "f32"), Rows: rows, Columns: columns}
	each.DataPerExpert = []Array{first, Strided(wide[rows*stride:], rows, columns, stride)}
	same(each, 1)
	transposed := *one
	transposed.Orientation, transposed.Rows, transposed.Columns = OrientationInOut, columns, rows
	found, err := transposed.Dequantize(0)
	must(t, err)
	if found[1] != wide[stride] || found[rows] != wide[1] {
		t.Fatal(found[1], found[rows])
	}

	refused := func(tensor Tensor, words ...string) {
		t.Helper()
		_, err := tensor.Dequantize(0)
		mustBe(t, err, ErrInvalidArgument, words...)
	}
	bad := *one
	bad.RowStride = 4*stride + 4
	refused(bad, "data", "RowStride is 204")
	bad = *one
	bad.Data = Strided(wide, rows/2, columns, stride)
	refused(bad, "data", "[16, 48]")
	bad.Data = Strided(wide, rows, columns-1, stride)
	refused(bad, "data", "[32, 47]")
	bad.Data = Strided(wide, 3*rows, columns, stride)
	refused(bad, "data", "do not fit")
	bad.Data = Strided(wide, rows, columns, columns-1)
	refused(bad, "data", "overlap")
	bad = *stack
	bad.ExpertStride = 4 * rows * columns
	refused(bad, "data", "ExpertStride is")
	bad = *each
	bad.DataPerExpert = []Array{first, Of(values[:rows*columns])}
	refused(bad, "data_per_expert", "[1]", "gaps")
	bad = *one
	bad.Format = named(t, "nvfp4")
	bad.Data, bad.Scales = Of(make([]uint8, rows*columns/2)), Strided(make([]uint8, 4*rows), rows, columns/16, 4)
	refused(bad, "scales", "dense")
}

func TestTensorsKeepTheirCheckpoint(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	checkpoint, err := OpenCheckpoint(g.path, nil)
	must(t, err)
	handle := checkpoint.Handle
	tensors, err := checkpoint.Tensors(g.layer)
	must(t, err)
	checkpoint = nil
	for i := 0; i < 3; i++ {
		runtime.GC()
	}
	sum := 0
	for _, one := range tensors[1].Bytes() {
		sum += int(one)
	}
	if handle.Closed() || sum == 0 {
		t.Fatal("the mapping is gone")
	}
	must(t, tensors[0].owner.Close())
	if bytes := tensors[1].Bytes(); bytes != nil {
		t.Fatal(len(bytes), "bytes of a checkpoint that is closed")
	}
	_, err = tensors[1].Dequantize(0)
	mustBe(t, err, ErrClosed)
}
