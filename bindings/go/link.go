//go:build !moe_dlopen && cgo

package moe

// #cgo pkg-config: moe
// #include "moego.h"
import "C"

import "fmt"

// openLibrary looks at the library that the loader has brought; path must be empty.
func openLibrary(path string) error {
	if path != "" {
		return fmt.Errorf("moe: %s: this program is linked against libmoe; the build tag moe_dlopen opens a file", path)
	}
	if found := uint32(C.moe_abi_version()); found != ABIVersion {
		message := fmt.Sprintf("libmoe: found ABI version %d, wanted %d", found, ABIVersion)
		return &Error{Status: ErrABI, Message: message, Call: "moe_abi_version"}
	}
	return nil
}
