//go:build !go1.21

package moe

// #include <stdlib.h>
// #include <string.h>
import "C"

import "unsafe"

// slicesAreCopied: the library has copies of slices.
const slicesAreCopied = true

// pins, before Go has a Pinner, are copies in C memory; what the library wrote is copied back when they are released.
type pins struct{ copies []pinnedCopy }

type pinnedCopy struct {
	source, memory unsafe.Pointer
	bytes          int64
	isOutput       bool
}

// at gives the address by which the library reads, and writes where isOutput. One slice has one copy.
func (p *pins) at(data unsafe.Pointer, bytes int64, isOutput bool) unsafe.Pointer {
	if data == nil || bytes == 0 {
		return data
	}
	for i := range p.copies {
		one := &p.copies[i]
		if one.source == data && one.bytes == bytes {
			one.isOutput = one.isOutput || isOutput
			return one.memory
		}
	}
	const alignment = 64 // what memory of the caller must have
	var made unsafe.Pointer
	if C.posix_memalign(&made, alignment, C.size_t(bytes)) != 0 {
		panic("moe: no memory for a copy")
	}
	C.memcpy(made, data, C.size_t(bytes))
	p.copies = append(p.copies, pinnedCopy{data, made, bytes, isOutput})
	return made
}

func (p *pins) release() {
	for _, one := range p.copies {
		if one.isOutput {
			C.memcpy(one.source, one.memory, C.size_t(one.bytes))
		}
		C.free(one.memory)
	}
	p.copies = nil
}
