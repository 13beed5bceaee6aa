package moe

// Format says how the bytes of a matrix are to be read: FormatByName, from a checkpoint, or by hand. The fields are those of
// moe_format, in its order.
type Format struct {
	Type          Type
	Bits          int32
	GroupRows     int32
	GroupColumns  int32
	ScaleType     Type
	GlobalScale   GlobalScale
	ZeroPoint     ZeroPoint
	Packing       Packing
	Codebook      Codebook
	BlockID       int32
	ActOrder      bool
	NestedScales  bool
	PreQuantScale bool
}
