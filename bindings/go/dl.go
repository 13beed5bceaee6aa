//go:build moe_dlopen

package moe

// #cgo CFLAGS: -I${SRCDIR}/../../include -DMOEGO_DLOPEN
// #cgo LDFLAGS: -ldl
// #include "moego.h"
import "C"

// openLibrary opens the first that loads of $MOE_LIBRARY, path and libmoe.so.0.1. It is kept if none was before.
func openLibrary(path string) error {
	var memory memory
	defer memory.free()
	var capacity C.uint64_t = 2048
	message := (*C.char)(memory.allocate(uintptr(capacity)))
	name := (*C.char)(nil)
	if path != "" {
		name = memory.text(path)
	}
	if status := C.moego_open(name, message, capacity); status != C.MOE_OK {
		return &Error{Status: Status(status), Message: C.GoString(message), Call: "moe_dl_open"}
	}
	return nil
}
