package moe

// #include "moego.h"
import "C"

import "unsafe"

// FormatByName is a named format, like "nvfp4"; FormatNames has them all.
func FormatByName(name string) (Format, error) {
	var memory memory
	defer memory.free()
	var found Format
	out := C.moe_format{struct_size: C.sizeof_moe_format}
	err := call("moe_format_by_name", func() C.moe_status { return C.moe_format_by_name(memory.text(name), &out) })
	if err == nil {
		getWords(wordsOfFormat(&out), &found)
	}
	return found, err
}

func (f *Format) c() *C.moe_format {
	made := new(C.moe_format)
	putWords(f, wordsOfFormat(made))
	return made
}

// inMemory is for structs that point to the format.
func (f *Format) inMemory(m *memory) *C.moe_format {
	made := (*C.moe_format)(m.allocate(C.sizeof_moe_format))
	putWords(f, wordsOfFormat(made))
	return made
}

// FormatInfo is moe_format_info.
type FormatInfo struct {
	Name          string
	BlockRows     int32 // the smallest unit that decodes alone
	BlockColumns  int32
	HasDecode     bool // the library reads it
	HasEncode     bool // Quantize writes it
	BitsPerWeight float64
}

// Info describes the format.
func (f *Format) Info() (FormatInfo, error) {
	info := C.moe_format_info{struct_size: C.sizeof_moe_format_info}
	err := call("moe_format_get_info", func() C.moe_status { return C.moe_format_get_info(f.c(), &info) })
	return FormatInfo{
		Name:          C.GoString(&info.name[0]),
		BlockRows:     int32(info.block_rows),
		BlockColumns:  int32(info.block_columns),
		HasDecode:     info.has_decode != 0,
		HasEncode:     info.has_encode != 0,
		BitsPerWeight: float64(info.bits_per_weight),
	}, err
}

// Size is the bytes of the codes and of the scales of one dense matrix.
func (f *Format) Size(rows, columns int64) (dataBytes, scaleBytes uint64, err error) {
	var data, scales C.uint64_t
	err = call("moe_format_size", func() C.moe_status {
		return C.moe_format_size(f.c(), C.int64_t(rows), C.int64_t(columns), &data, &scales)
	})
	return uint64(data), uint64(scales), err
}

// Validate checks a description as NewPlan would; the error names the first wrong field.
func (l *LayerDesc) Validate() error {
	return call("moe_layer_validate", func() C.moe_status { return C.moe_layer_validate(l.c()) })
}

func (l *LayerDesc) c() *C.moe_layer_desc {
	made := new(C.moe_layer_desc)
	putWords(l, wordsOfLayer(made))
	return made
}

func (l *LayerDesc) inMemory(m *memory) *C.moe_layer_desc {
	made := (*C.moe_layer_desc)(m.allocate(C.sizeof_moe_layer_desc))
	putWords(l, wordsOfLayer(made))
	return made
}

// wordStructs are the sizes by the compiler, for the test.
var wordStructs = map[string]uintptr{"moe_layer_desc": C.sizeof_moe_layer_desc, "moe_format": C.sizeof_moe_format}

func wordsOfFormat(format *C.moe_format) []uint32 {
	return (*[C.sizeof_moe_format / 4]uint32)(unsafe.Pointer(format))[:]
}

func wordsOfLayer(layer *C.moe_layer_desc) []uint32 {
	return (*[C.sizeof_moe_layer_desc / 4]uint32)(unsafe.Pointer(layer))[:]
}
