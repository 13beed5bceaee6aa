package moe

// #include "moego.h"
import "C"

import "unsafe"

// memory is what the arguments of a call point to: C memory for structs and strings, slices of Go by way of pins. It is given back
// by free, after the call, or after the weights that borrow from it.
type memory struct {
	allocated []unsafe.Pointer
	pins      pins
	after     []func()
}

// allocate gives zeroed C memory.
func (m *memory) allocate(bytes uintptr) unsafe.Pointer {
	if bytes == 0 {
		bytes = 1
	}
	made := C.calloc(1, C.size_t(bytes))
	if made == nil {
		panic("moe: out of memory")
	}
	m.allocated = append(m.allocated, made)
	return made
}

func (m *memory) text(s string) *C.char {
	made := C.CString(s)
	m.allocated = append(m.allocated, unsafe.Pointer(made))
	return made
}

// optional is text, or NULL for an empty string.
func (m *memory) optional(s string) *C.char {
	if s == "" {
		return nil
	}
	return m.text(s)
}

func (m *memory) free() {
	m.pins.release()
	for _, one := range m.allocated {
		C.free(one)
	}
	m.allocated = nil
	for _, one := range m.after {
		one()
	}
	m.after = nil
}
