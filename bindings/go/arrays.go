package moe

import (
	"fmt"
	"math"
	"unsafe"
)

// BF16 and F16 are the bits of 16-bit floats, which Go has no type for.
type (
	BF16 uint16
	F16  uint16
)

// Element is what slices may be of.
type Element interface {
	float32 | float64 | BF16 | F16 | int8 | uint8 | int32 | int64
}

// Array is memory that a call reads or writes: a slice (Of, Strided), or an address (At). The zero Array is none.
type Array struct {
	typ      Type
	data     unsafe.Pointer
	elements int64 // of the memory
	rows     int64 // -1: any number of dense ones
	columns  int64
	stride   int64 // in elements; 0: dense
	isSlice  bool
}

func typeOf[T Element]() Type {
	var zero T
	switch any(zero).(type) {
	case float32:
		return TypeF32
	case float64:
		return TypeF64
	case BF16:
		return TypeBF16
	case F16:
		return TypeF16
	case int8:
		return TypeI8
	case uint8:
		return TypeU8
	case int32:
		return TypeI32
	}
	return TypeI64
}

func elementBytes(t Type) int64 {
	switch t {
	case TypeF64, TypeI64:
		return 8
	case TypeF32, TypeI32:
		return 4
	case TypeF16, TypeBF16:
		return 2
	}
	return 1
}

// Of is a dense slice of rows; how many follows from its length. A nil slice is no array, an empty one has no rows.
func Of[T Element](slice []T) Array {
	if slice == nil {
		return Array{}
	}
	return Array{typ: typeOf[T](), data: dataOf(slice), elements: int64(len(slice)), rows: -1, isSlice: true}
}

// Strided is rows of a slice that begin every stride elements.
func Strided[T Element](slice []T, rows, columns, stride int64) Array {
	return Array{typeOf[T](), dataOf(slice), int64(len(slice)), rows, columns, stride, true}
}

func dataOf[T Element](slice []T) unsafe.Pointer {
	if len(slice) == 0 {
		return nil
	}
	return unsafe.Pointer(&slice[0])
}

// At is memory that is not a slice: of a device, or of C. It must hold rows of columns elements, stride (0: columns) apart, and
// stay until the work on it is done.
func At(address unsafe.Pointer, t Type, rows, columns, stride int64) Array {
	elements := rows * columns
	if stride != 0 && rows > 0 {
		elements = (rows-1)*stride + columns
	}
	return Array{t, address, elements, rows, columns, stride, false}
}

func (a Array) given() bool { return a.typ != TypeNone }

// length is the elements of all rows: those of the memory, without what lies between and behind them. Of rows that no memory
// could have it is -1.
func (a Array) length() int64 {
	if a.rows < 0 {
		return a.elements
	}
	if a.columns < 0 || (a.columns > 0 && a.rows > math.MaxInt64/a.columns) {
		return -1
	}
	return a.rows * a.columns
}

func (a Array) bytes() int64 { return a.elements * elementBytes(a.typ) }

// hasGaps says whether there is anything between the rows.
func (a Array) hasGaps() bool { return a.rows >= 0 && a.stride != 0 && a.stride != a.columns }

// rowsOf is how many rows of that many columns there are.
func (a Array) rowsOf(columns int64) int64 {
	if a.rows >= 0 || columns <= 0 {
		return a.rows
	}
	return a.elements / columns
}

// check says in an error of that name whether the array is [rows, columns] of one of the types.
func (a Array) check(name string, rows, columns int64, types ...Type) error {
	if err := a.checkType(name, types); err != nil {
		return err
	}
	wrong := func(format string, values ...any) error {
		return &ArgumentError{name, fmt.Sprintf(format, values...)}
	}
	if a.rows < 0 {
		if a.elements != rows*columns {
			return wrong("has %d elements, must have %d x %d", a.elements, rows, columns)
		}
		return nil
	}
	if a.rows != rows || a.columns != columns {
		return wrong("is [%d, %d], must be [%d, %d]", a.rows, a.columns, rows, columns)
	}
	if a.stride != 0 && a.stride < columns {
		return wrong("rows of %d elements overlap at a stride of %d", columns, a.stride)
	}
	if a.isSlice && rows > 0 && columns > 0 {
		step := a.stride
		if step == 0 {
			step = columns
		}
		if rows-1 > (a.elements-columns)/step || a.elements < columns {
			return wrong("%d rows at a stride of %d do not fit %d elements", rows, step, a.elements)
		}
	}
	return nil
}

func (a Array) checkType(name string, types []Type) error {
	for _, one := range types {
		if a.typ == one {
			return nil
		}
	}
	return &ArgumentError{name, fmt.Sprintf("is %s, must be %s", a.typ, types)}
}

// at is the address for the library.
func (a Array) at(m *memory, isOutput bool) unsafe.Pointer {
	if !a.isSlice {
		return a.data
	}
	if !isOutput {
		return m.pins.at(a.data, a.bytes(), nil)
	}
	return m.pins.at(a.data, a.bytes(), a.written())
}

// written is what a call may write.
func (a Array) written() *region {
	size, step := elementBytes(a.typ), a.stride
	if step == 0 {
		step = a.columns
	}
	if a.rows < 0 || a.check("", a.rows, a.columns, a.typ) != nil {
		return &region{rows: 1, bytes: a.bytes()}
	}
	return &region{a.rows, a.columns * size, step * size}
}

// region is rows of bytes, which begin every stride bytes.
type region struct{ rows, bytes, stride int64 }
