package moe

import (
	"fmt"
	"unsafe"
)

// AllExperts, as Tensor.Expert, is a stack of experts.
const AllExperts = MOE_ALL_EXPERTS

// RoleCount is one more than the largest role.
const RoleCount = MOE_ROLE_COUNT

// Tensor is moe_tensor: a matrix or vector, of one expert or of all stacked. Its memory is not copied; byte counts are those of
// the arrays.
type Tensor struct {
	Role              Role
	Expert            int32 // global id, or AllExperts; ignored for roles without experts
	Orientation       Orientation
	GateUpOrder       GateUpOrder
	Space             Space
	Format            Format
	NExperts          int64 // of a stack
	Rows              int64 // of one expert, logical
	Columns           int64
	RowStride         int64 // bytes; 0: dense
	ExpertStride      int64
	Data              Array
	DataPerExpert     []Array // instead of Data
	Scales            Array
	ScalesPerExpert   []Array
	ScaleRowStride    int64
	ScaleExpertStride int64
	ScaleLayout       ScaleLayout
	GlobalScale       Array // float32, one or one per expert
	Codebook          Array // float32
	ZeroPoints        Array
	Permutation       Array // int32
	NestedScales      Array // float32
	NestedCodebook    Array // float32, 256
	NestedOffset      float32
	InputScale        Array // float32, one or one per expert
	PreQuantScale     Array

	owner *Checkpoint // of the mapping that the arrays lie in: it is not collected before the tensor
}

var denseFormats = map[Type]string{TypeF32: "f32", TypeF16: "f16", TypeBF16: "bf16"}

// Dense is a tensor of float32, F16 or BF16 [rows, columns], or of a stack of experts if data has more than one of them.
func Dense(role Role, data Array, rows, columns int64) (*Tensor, error) {
	name, ok := denseFormats[data.typ]
	if !ok {
		return nil, &ArgumentError{"data", fmt.Sprintf("is %s, must be f32, f16 or bf16", data.typ)}
	}
	length := data.length()
	if rows <= 0 || columns <= 0 || rows > length/columns || length%(rows*columns) != 0 {
		return nil, &ArgumentError{"data", fmt.Sprintf("has %d elements, no multiple of %d x %d", length, rows, columns)}
	}
	format, err := FormatByName(name)
	made := &Tensor{Role: role, Expert: AllExperts, Format: format, Rows: rows, Columns: columns, Data: data}
	if stack := length / (rows * columns); stack > 1 {
		made.NExperts = stack
	}
	return made, err
}

func tensorOf(owner *Checkpoint, from *moe_tensor) *Tensor {
	bytes := func(address unsafe.Pointer, n uint64) Array {
		if address == nil {
			return Array{}
		}
		return At(address, TypeU8, 1, int64(n), 0)
	}
	floats := func(address *float32, n int64) Array {
		if address == nil {
			return Array{}
		}
		return At(unsafe.Pointer(address), TypeF32, 1, n, 0)
	}
	made := &Tensor{
		Role: Role(from.role), Expert: int32(from.expert), Orientation: Orientation(from.orientation),
		GateUpOrder: GateUpOrder(from.gate_up_order), Space: Space(from.space),
		NExperts: int64(from.n_experts), Rows: int64(from.rows), Columns: int64(from.columns),
		RowStride: int64(from.row_stride), ExpertStride: int64(from.expert_stride),
		ScaleRowStride: int64(from.scale_row_stride), ScaleExpertStride: int64(from.scale_expert_stride),
		Data: bytes(from.data, from.data_bytes), Scales: bytes(from.scales, from.scale_bytes),
		DataPerExpert:   perExpert(from.data_per_expert, from.n_experts, from.data_bytes),
		ScalesPerExpert: perExpert(from.scales_per_expert, from.n_experts, from.scale_bytes),
		ScaleLayout:     ScaleLayout(from.scale_layout),
		GlobalScale:     floats(from.global_scale, int64(from.n_global_scales)),
		Codebook:        floats(from.codebook, int64(from.codebook_bytes/4)),
		ZeroPoints:      bytes(from.zero_points, from.zero_point_bytes),
		NestedScales:    floats(from.nested_scales, int64(from.nested_scale_bytes/4)),
		NestedCodebook:  floats(from.nested_codebook, 256),
		NestedOffset:    float32(from.nested_offset),
		InputScale:      floats(from.input_scale, int64(from.n_input_scales)),
		PreQuantScale:   bytes(from.pre_quant_scale, from.pre_quant_scale_bytes),
		owner:           owner,
	}
	if from.permutation != nil {
		made.Permutation = At(unsafe.Pointer(from.permutation), TypeI32, 1, int64(from.permutation_bytes/4), 0)
	}
	getWords(wordsOfFormat(from.format), &made.Format)
	return made
}

func perExpert(addresses *unsafe.Pointer, n int64, bytes uint64) []Array {
	if addresses == nil {
		return nil
	}
	found := make([]Array, 0, int(n))
	for _, one := range unsafe.Slice(addresses, int(n)) {
		found = append(found, At(one, TypeU8, 1, int64(bytes), 0))
	}
	return found
}

// inMemory is the struct, and what it points to, for as long as the memory lives.
func (t *Tensor) inMemory(m *memory) (*moe_tensor, error) {
	if err := t.checkArrays(); err != nil {
		return nil, err
	}
	made := (*moe_tensor)(m.allocate(sizeof_moe_tensor))
	made.struct_size = uint32(sizeof_moe_tensor)
	made.role, made.expert = moe_role(t.Role), int32(t.Expert)
	made.orientation = moe_orientation(t.Orientation)
	made.gate_up_order = moe_gate_up_order(t.GateUpOrder)
	made.space = moe_space(t.Space)
	made.format = t.Format.inMemory(m)
	made.n_experts, made.rows, made.columns = int64(t.NExperts), int64(t.Rows), int64(t.Columns)
	made.row_stride, made.expert_stride = int64(t.RowStride), int64(t.ExpertStride)
	made.scale_row_stride, made.scale_expert_stride = int64(t.ScaleRowStride), int64(t.ScaleExpertStride)
	made.scale_layout = moe_scale_layout(t.ScaleLayout)
	made.nested_offset = float32(t.NestedOffset)
	bytes := func(array Array, size *uint64) unsafe.Pointer {
		if array.given() {
			*size = uint64(array.bytes())
		}
		return array.at(m, false)
	}
	made.data = bytes(t.Data, &made.data_bytes)
	made.scales = bytes(t.Scales, &made.scale_bytes)
	made.zero_points = bytes(t.ZeroPoints, &made.zero_point_bytes)
	made.pre_quant_scale = bytes(t.PreQuantScale, &made.pre_quant_scale_bytes)
	made.codebook = (*float32)(bytes(t.Codebook, &made.codebook_bytes))
	made.nested_scales = (*float32)(bytes(t.NestedScales, &made.nested_scale_bytes))
	made.permutation = (*int32)(bytes(t.Permutation, &made.permutation_bytes))
	made.nested_codebook = (*float32)(t.NestedCodebook.at(m, false))
	made.global_scale = (*float32)(t.GlobalScale.at(m, false))
	made.n_global_scales = int64(t.GlobalScale.length())
	made.input_scale = (*float32)(t.InputScale.at(m, false))
	made.n_input_scales = int64(t.InputScale.length())
	err := t.setPerExpert(made, m)
	if err == nil && t.Data.hasGaps() {
		err = t.setStride(made, "data", t.Data, t.NExperts)
	}
	if err == nil && len(t.DataPerExpert) > 0 && t.DataPerExpert[0].hasGaps() {
		err = t.setStride(made, "data_per_expert", t.DataPerExpert[0], 1)
	}
	return made, err
}

// setStride gives the tensor the row stride of an array that is one matrix, or a stack of n.
func (t *Tensor) setStride(made *moe_tensor, name string, array Array, n int64) error {
	matrix, _, err := t.Format.Size(t.Rows, t.Columns)
	if err != nil {
		return err
	}
	rows := t.Rows // as stored
	if t.Orientation == OrientationInOut {
		rows = t.Columns
	}
	if n < 1 {
		n = 1
	}
	size := elementBytes(array.typ)
	if rows <= 0 || array.rows%n != 0 || array.rows/n != rows || uint64(array.columns) != matrix/uint64(rows)/uint64(size) ||
		matrix%uint64(rows*size) != 0 {
		const words = "is [%d, %d] with gaps, must have the %d rows of %d matrices of %d bytes"
		return &ArgumentError{name, fmt.Sprintf(words, array.rows, array.columns, rows, n, matrix)}
	}
	stride := array.stride * size
	if t.RowStride != 0 && t.RowStride != stride {
		return &ArgumentError{name, fmt.Sprintf("has rows %d bytes apart, RowStride is %d", stride, t.RowStride)}
	}
	if n > 1 && t.ExpertStride != 0 && t.ExpertStride != rows*stride {
		return &ArgumentError{name, fmt.Sprintf("has experts %d bytes apart, ExpertStride is %d", rows*stride, t.ExpertStride)}
	}
	made.row_stride = int64(stride)
	if n > 1 {
		made.expert_stride = int64(rows * stride)
	}
	return nil
}

func (t *Tensor) setPerExpert(made *moe_tensor, m *memory) (err error) {
	set := func(name string, arrays []Array, size *uint64) *unsafe.Pointer {
		if len(arrays) == 0 {
			return nil
		}
		addresses := (*unsafe.Pointer)(m.allocate(uintptr(len(arrays)) * unsafe.Sizeof(uintptr(0))))
		for i, one := range arrays {
			if one.bytes() != arrays[0].bytes() && err == nil {
				err = &ArgumentError{name, fmt.Sprintf("[%d] has %d bytes, the first %d", i, one.bytes(), arrays[0].bytes())}
			}
			unsafe.Slice(addresses, len(arrays))[i] = one.at(m, false)
		}
		*size = uint64(arrays[0].bytes())
		made.n_experts = int64(len(arrays))
		return addresses
	}
	made.data_per_expert = set("data_per_expert", t.DataPerExpert, &made.data_bytes)
	made.scales_per_expert = set("scales_per_expert", t.ScalesPerExpert, &made.scale_bytes)
	return err
}

// rawTypes are bytes that are not looked into: every format may be given as them.
var rawTypes = []Type{TypeU8, TypeI8}

// codeTypes are those of arrays that hold codes of the format.
func (t *Tensor) codeTypes() []Type {
	switch t.Format.Packing {
	case PackingBitPlanes, PackingBitStream, PackingGPTQ, PackingAWQ: // in words
		return append([]Type{TypeI32}, rawTypes...)
	}
	return append([]Type{t.Format.Type}, rawTypes...)
}

func (t *Tensor) scaleTypes() []Type {
	if t.Format.NestedScales {
		return rawTypes
	}
	return append([]Type{t.Format.ScaleType}, rawTypes...)
}

func (t *Tensor) zeroPointTypes() []Type {
	if t.Format.ZeroPoint == ZeroPointFloat {
		return t.scaleTypes()
	}
	return t.codeTypes()
}

// checkArrays compares types, by which values would be other ones, and what has gaps. Whether the format has the buffer, and its
// bytes, is the library's to say.
func (t *Tensor) checkArrays() error {
	floats := []Type{TypeF32}
	for _, one := range []struct {
		name   string
		arrays []Array
		types  []Type
		isData bool
	}{
		{"data", []Array{t.Data}, t.codeTypes(), true},
		{"data_per_expert", t.DataPerExpert, t.codeTypes(), true},
		{"scales", []Array{t.Scales}, t.scaleTypes(), false},
		{"scales_per_expert", t.ScalesPerExpert, t.scaleTypes(), false},
		{"zero_points", []Array{t.ZeroPoints}, t.zeroPointTypes(), false},
		{"global_scale", []Array{t.GlobalScale}, floats, false},
		{"input_scale", []Array{t.InputScale}, floats, false},
		{"codebook", []Array{t.Codebook}, floats, false},
		{"nested_scales", []Array{t.NestedScales}, floats, false},
		{"nested_codebook", []Array{t.NestedCodebook}, floats, false},
		{"permutation", []Array{t.Permutation}, []Type{TypeI32}, false},
		{"pre_quant_scale", []Array{t.PreQuantScale}, append(floats, rawTypes...), false},
	} {
		for i, array := range one.arrays {
			if err := array.checkPart(one.name, one.types, one.isData); err != nil {
				return err
			}
			if array.stride != one.arrays[0].stride && (array.hasGaps() || one.arrays[0].hasGaps()) {
				return &ArgumentError{one.name, fmt.Sprintf("[%d] has other gaps than the first", i)}
			}
		}
	}
	if t.NestedCodebook.given() {
		return t.NestedCodebook.check("nested_codebook", 1, 256, TypeF32)
	}
	return nil
}

// checkPart is about one array of a tensor. No type among types is that of a part that the format does not have.
func (a Array) checkPart(name string, types []Type, mayHaveGaps bool) error {
	if !a.given() || types[0] == TypeNone {
		return nil
	}
	if err := a.checkType(name, types); err != nil {
		return err
	}
	if a.hasGaps() && !mayHaveGaps {
		return &ArgumentError{name, "must be dense"}
	}
	if a.rows < 0 {
		return nil
	}
	return a.check(name, a.rows, a.columns, types...)
}

// owners are the handles that must be open while the tensors are read.
func owners(tensors []*Tensor) []*Handle {
	var found []*Handle
	for _, one := range tensors {
		if one.owner != nil {
			found = append(found, one.owner.Handle)
		}
	}
	return found
}

// Bytes are those of Data in host memory, not copied. Those of a checkpoint lie in its mapping: they are there until it is closed,
// and after that there are none (nil). What nobody closed the garbage collector does, and the slice does not hold it up, the tensor
// does: keep that for as long as the bytes are read, by runtime.KeepAlive(tensor) behind the last of them.
func (t *Tensor) Bytes() []byte {
	if t.Data.data == nil || t.Space == SpaceDevice || (t.owner != nil && t.owner.Closed()) {
		return nil
	}
	return unsafe.Slice((*byte)(t.Data.data), t.Data.bytes())
}

// Quantize writes a float32 matrix [rows, columns] in a format that has HasEncode, as a tensor of that role. codebook, of 2^bits
// values, is for formats that are given one.
func Quantize(role Role, matrix []float32, rows, columns int64, format Format, codebook []float32) (*Tensor, error) {
	if err := Of(matrix).check("matrix", rows, columns, TypeF32); err != nil {
		return nil, err
	}
	if codebook != nil {
		if err := Of(codebook).check("codebook", 1, 1<<(format.Bits&31), TypeF32); err != nil {
			return nil, err
		}
	}
	dataBytes, scaleBytes, err := format.Size(rows, columns)
	if err != nil {
		return nil, err
	}
	made := &Tensor{Role: role, Format: format, Rows: rows, Columns: columns, Data: Of(make([]uint8, dataBytes))}
	if scaleBytes > 0 {
		made.Scales = Of(make([]uint8, scaleBytes))
	}
	if format.GlobalScale != GlobalScaleNone {
		made.GlobalScale = Of(make([]float32, 1))
	}
	made.Codebook = Of(codebook)
	var memory memory
	defer memory.free()
	args := (*moe_quantize_args)(memory.allocate(sizeof_moe_quantize_args))
	args.struct_size = uint32(sizeof_moe_quantize_args)
	args.format = format.inMemory(&memory)
	args.source = (*float32)(Of(matrix).at(&memory, false))
	args.rows, args.columns = int64(rows), int64(columns)
	args.data, args.data_bytes = made.Data.at(&memory, true), uint64(dataBytes)
	args.scales, args.scale_bytes = made.Scales.at(&memory, true), uint64(scaleBytes)
	args.global_scale = (*float32)(made.GlobalScale.at(&memory, true))
	args.codebook = (*float32)(made.Codebook.at(&memory, false))
	return made, call("moe_quantize", func() moe_status { return moe_quantize(args) })
}

// Dequantize is one expert of the tensor (0 for a single matrix) as float32 [Rows, Columns], as it lies.
func (t *Tensor) Dequantize(expert int64) ([]float32, error) {
	var memory memory
	defer memory.free()
	desc, err := t.inMemory(&memory)
	if err != nil {
		return nil, err
	}
	if t.Rows <= 0 || t.Columns <= 0 || t.Rows > (1<<40)/t.Columns {
		return nil, &ArgumentError{"rows", fmt.Sprintf("%d x %d is no matrix", t.Rows, t.Columns)}
	}
	out := make([]float32, t.Rows*t.Columns)
	err = using(owners([]*Tensor{t}), func([]unsafe.Pointer) error {
		address := (*float32)(Of(out).at(&memory, true))
		return call("moe_dequantize", func() moe_status {
			return moe_dequantize(desc, int64(expert), address, uint64(len(out)))
		})
	})
	memory.free()
	return out, err
}

// ScaleLayoutSize is the bytes of the scales of one matrix in a layout; columns counts groups of columns.
func ScaleLayoutSize(layout ScaleLayout, rows, columns int64) (uint64, error) {
	var bytes uint64
	err := call("moe_scale_layout_size", func() moe_status {
		return moe_scale_layout_size(moe_scale_layout(layout), int64(rows), int64(columns), &bytes)
	})
	return uint64(bytes), err
}

// ConvertScales is the scales of one matrix, [rows, columns] of one byte, in another layout; columns counts groups of columns.
func ConvertScales(scales Array, from, to ScaleLayout, rows, columns int64) ([]uint8, error) {
	bytes, err := ScaleLayoutSize(to, rows, columns)
	if err != nil {
		return nil, err
	}
	// No layout has more than a tile for a scale: a size from nowhere is not allocated.
	if uint64(scales.bytes()) < bytes/512 {
		return nil, &ArgumentError{"scales", fmt.Sprintf("has %d bytes, of %d x %d", scales.bytes(), rows, columns)}
	}
	out := make([]uint8, bytes)
	var memory memory
	defer memory.free()
	args := (*moe_convert_scales_args)(memory.allocate(sizeof_moe_convert_scales_args))
	args.struct_size = uint32(sizeof_moe_convert_scales_args)
	args.source_layout, args.layout = moe_scale_layout(from), moe_scale_layout(to)
	args.rows, args.columns = int64(rows), int64(columns)
	args.source, args.source_bytes = scales.at(&memory, false), uint64(scales.bytes())
	args.scales, args.scale_bytes = Of(out).at(&memory, true), uint64(bytes)
	err = call("moe_convert_scales", func() moe_status { return moe_convert_scales(args) })
	memory.free()
	return out, err
}
