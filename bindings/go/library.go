// Package moe is libmoe from Go: the Mixture-of-Experts layer of a language model.
//
// A Checkpoint is opened, a Plan made for one of its layers, Weights are loaded for the plan, a Workspace is made, Forward is
// called; a Layer is these in one. What moe.h says of a function holds for the one of the same name here.
//
// Any number of goroutines may use a Runtime, Checkpoint, Plan or Weights at once; a Workspace serves one at a time, and a second
// one gets ErrBusy. Close may be called at any time and from any goroutine: it takes effect when the last running call returns.
package moe

import (
	"runtime"
	"sync"
)

// ABIVersion is that of the header this package was compiled with; a library of another one is refused.
const ABIVersion = MOE_ABI_VERSION

// HeaderVersion is MOE_VERSION_NUMBER of the header.
const HeaderVersion = MOE_VERSION_NUMBER

var gate struct {
	sync.Mutex
	open bool
}

// Load looks at the library before its first use, which does the same with an empty path. Under the build tag moe_dlopen it opens
// the first that loads of $MOE_LIBRARY, path and libmoe.so.0.1; otherwise the library is linked and path must be empty.
// A library of another ABI version is ErrABI. Once it has succeeded it does nothing.
func Load(path string) error {
	gate.Lock()
	defer gate.Unlock()
	if gate.open {
		return nil
	}
	if err := openLibrary(path); err != nil {
		return err
	}
	gate.open = true
	return nil
}

// call runs one function of the library. The sentence of a failure is kept per thread, so the thread is held until it is read.
func call(name string, run func() moe_status) error {
	if err := Load(""); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := run()
	if status == MOE_OK {
		return nil
	}
	return &Error{Status: Status(status), Message: goString(moe_last_error()), Call: name}
}

// text runs a function that cannot fail but for a library that is not there; then the answer is empty.
func text(run func() *byte) string {
	if Load("") != nil {
		return ""
	}
	return goString(run())
}

// Version is MOE_VERSION_NUMBER of the library, 0 if there is none.
func Version() uint32 {
	if Load("") != nil {
		return 0
	}
	return uint32(moe_version())
}

// LibraryABIVersion is the ABI version of the library, 0 if there is none that can be used.
func LibraryABIVersion() uint32 {
	if Load("") != nil {
		return 0
	}
	return uint32(moe_abi_version())
}

// VersionString is the version of the library, like "0.1.0".
func VersionString() string { return text(func() *byte { return moe_version_string() }) }

// BuildInfo has lines "key=value": version, compiler, backends. Put it in bug reports.
func BuildInfo() string { return text(func() *byte { return moe_build_info() }) }

// String is "gate", "shared_down" and the like, "unknown" for other values.
func (r Role) String() string {
	return text(func() *byte { return moe_role_name(moe_role(r)) })
}

// String is "f32", "f8_e4m3" and the like, "unknown" for other values.
func (t Type) String() string {
	return text(func() *byte { return moe_type_name(moe_type(t)) })
}

func listed(name func(index uint32) *byte) []string {
	if Load("") != nil {
		return nil
	}
	var names []string
	for one := name(0); one != nil; one = name(uint32(len(names))) {
		names = append(names, goString(one))
	}
	return names
}

// FormatNames are those that FormatByName knows.
func FormatNames() []string {
	return listed(func(index uint32) *byte { return moe_format_name_at(index) })
}

// Families are the model families whose checkpoints can be read.
func Families() []string {
	return listed(func(index uint32) *byte { return moe_checkpoint_family_at(index) })
}
