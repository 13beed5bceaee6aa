package moe

import "unsafe"

// FormatByName is a named format, like "nvfp4"; FormatNames has them all.
func FormatByName(name string) (Format, error) {
	var memory memory
	defer memory.free()
	var found Format
	out := moe_format{struct_size: uint32(sizeof_moe_format)}
	err := call("moe_format_by_name", func() moe_status { return moe_format_by_name(memory.text(name), &out) })
	if err == nil {
		getWords(wordsOfFormat(&out), &found)
	}
	return found, err
}

func (f *Format) c() *moe_format {
	made := new(moe_format)
	putWords(f, wordsOfFormat(made))
	return made
}

// inMemory is for structs that point to the format.
func (f *Format) inMemory(m *memory) *moe_format {
	made := (*moe_format)(m.allocate(sizeof_moe_format))
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
	info := moe_format_info{struct_size: uint32(sizeof_moe_format_info)}
	err := call("moe_format_get_info", func() moe_status { return moe_format_get_info(f.c(), &info) })
	return FormatInfo{
		Name:          goString(&info.name[0]),
		BlockRows:     int32(info.block_rows),
		BlockColumns:  int32(info.block_columns),
		HasDecode:     info.has_decode != 0,
		HasEncode:     info.has_encode != 0,
		BitsPerWeight: float64(info.bits_per_weight),
	}, err
}

// Size is the bytes of the codes and of the scales of one dense matrix.
func (f *Format) Size(rows, columns int64) (dataBytes, scaleBytes uint64, err error) {
	var data, scales uint64
	err = call("moe_format_size", func() moe_status {
		return moe_format_size(f.c(), int64(rows), int64(columns), &data, &scales)
	})
	return uint64(data), uint64(scales), err
}

// Validate checks a description as NewPlan would; the error names the first wrong field.
func (l *LayerDesc) Validate() error {
	return call("moe_layer_validate", func() moe_status { return moe_layer_validate(l.c()) })
}

func (l *LayerDesc) c() *moe_layer_desc {
	made := new(moe_layer_desc)
	putWords(l, wordsOfLayer(made))
	return made
}

func (l *LayerDesc) inMemory(m *memory) *moe_layer_desc {
	made := (*moe_layer_desc)(m.allocate(sizeof_moe_layer_desc))
	putWords(l, wordsOfLayer(made))
	return made
}

// wordStructs are the sizes by the compiler, for the test.
var wordStructs = map[string]uintptr{"moe_layer_desc": sizeof_moe_layer_desc, "moe_format": sizeof_moe_format}

func wordsOfFormat(format *moe_format) []uint32 {
	return (*[sizeof_moe_format / 4]uint32)(unsafe.Pointer(format))[:]
}

func wordsOfLayer(layer *moe_layer_desc) []uint32 {
	return (*[sizeof_moe_layer_desc / 4]uint32)(unsafe.Pointer(layer))[:]
}
