//go:build go1.21

package moe

import (
	"runtime"
	"unsafe"
)

// slicesAreCopied: the library has the slices of Go themselves.
const slicesAreCopied = false

// pins hold slices of Go in place while the library has their addresses.
type pins struct{ pinner runtime.Pinner }

// at gives the address by which the library reads, and writes the region that is not nil.
func (p *pins) at(data unsafe.Pointer, bytes int64, written *region) unsafe.Pointer {
	if data == nil || bytes == 0 {
		return data
	}
	p.pin(data)
	return data
}

// pin passes over memory that is not Go's, a mapping for instance: it needs no pin, and Go 1.21 panics on it.
func (p *pins) pin(data unsafe.Pointer) {
	defer func() { _ = recover() }()
	p.pinner.Pin(data)
}

func (p *pins) release() { p.pinner.Unpin() }
