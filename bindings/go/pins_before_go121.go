//go:build !go1.21 && cgo

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
	written        []region
}

// at gives the address by which the library reads, and writes the region that is not nil. One slice has one copy.
func (p *pins) at(data unsafe.Pointer, bytes int64, written *region) unsafe.Pointer {
	if data == nil || bytes == 0 {
		return data
	}
	one := p.find(data, bytes)
	if one == nil {
		one = p.copy(data, bytes)
	}
	if written != nil {
		one.written = append(one.written, *written)
	}
	return one.memory
}

func (p *pins) find(data unsafe.Pointer, bytes int64) *pinnedCopy {
	for i := range p.copies {
		if one := &p.copies[i]; one.source == data && one.bytes == bytes {
			return one
		}
	}
	return nil
}

func (p *pins) copy(data unsafe.Pointer, bytes int64) *pinnedCopy {
	const alignment = 64 // what memory of the caller must have
	var made unsafe.Pointer
	if C.posix_memalign(&made, alignment, C.size_t(bytes)) != 0 {
		panic("moe: no memory for a copy")
	}
	C.memcpy(made, data, C.size_t(bytes))
	p.copies = append(p.copies, pinnedCopy{source: data, memory: made, bytes: bytes})
	return &p.copies[len(p.copies)-1]
}

// release leaves what lies between rows as it is: it is not the call's, and another may have written there.
func (p *pins) release() {
	for _, one := range p.copies {
		for _, region := range one.written {
			for row := int64(0); row < region.rows; row++ {
				begin := row * region.stride
				C.memcpy(unsafe.Add(one.source, begin), unsafe.Add(one.memory, begin), C.size_t(region.bytes))
			}
		}
		C.free(one.memory)
	}
	p.copies = nil
}
