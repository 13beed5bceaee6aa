package moe

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
	made := allocateC(bytes)
	if made == nil {
		panic("moe: out of memory")
	}
	m.allocated = append(m.allocated, made)
	return made
}

func (m *memory) text(s string) *byte {
	made := (*byte)(m.allocate(uintptr(len(s) + 1)))
	copy(unsafe.Slice(made, len(s)), s)
	return made
}

// goString is a copy of a text of C; NULL is empty.
func goString(text *byte) string {
	if text == nil {
		return ""
	}
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(text), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(text, length))
}

// optional is text, or NULL for an empty string.
func (m *memory) optional(s string) *byte {
	if s == "" {
		return nil
	}
	return m.text(s)
}

func (m *memory) free() {
	m.pins.release()
	for _, one := range m.allocated {
		freeC(one)
	}
	m.allocated = nil
	for _, one := range m.after {
		one()
	}
	m.after = nil
}
