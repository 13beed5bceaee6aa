//go:build moe_dlopen && cgo

package moe

// #cgo CFLAGS: -I${SRCDIR}/../../include -DMOEGO_DLOPEN
// #cgo LDFLAGS: -ldl
// #include "moego.h"
import "C"

import "unsafe"

// openLibrary opens the first that loads of $MOE_LIBRARY, path and libmoe.so.0.1. It is kept if none was before.
func openLibrary(path string) error {
	var memory memory
	defer memory.free()
	var capacity C.uint64_t = 2048
	message := (*byte)(memory.allocate(uintptr(capacity)))
	name := (*byte)(nil)
	if path != "" {
		name = memory.text(path)
	}
	status := C.moego_open((*C.char)(unsafe.Pointer(name)), (*C.char)(unsafe.Pointer(message)), capacity)
	if status != C.MOE_OK {
		return &Error{Status: Status(status), Message: goString(message), Call: "moe_dl_open"}
	}
	return nil
}
