//go:build !cgo

package moe

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Without cgo nothing is linked: the library is opened by openLibrary, and functions of libc are looked up like its own.

const libraryName = "libmoe.so.0.1"

// openLibrary opens the first that loads of $MOE_LIBRARY, path and libmoe.so.0.1, as moe_dl_open() does. It is kept if none was
// before.
func openLibrary(path string) error {
	library, err := firstLibrary(os.Getenv("MOE_LIBRARY"), path, libraryName)
	if err != nil {
		return err
	}
	found, err := symbolsOf(library)
	if err != nil || symbols != [len(symbolNames)]uintptr{} {
		_ = purego.Dlclose(library)
		return err
	}
	symbols = found
	return nil
}

func firstLibrary(candidates ...string) (uintptr, error) {
	var tried []string
	for _, one := range candidates {
		if one == "" {
			continue
		}
		library, err := purego.Dlopen(one, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return library, nil
		}
		tried = append(tried, err.Error())
	}
	return 0, refused(ErrNotFound, "libmoe not found: %s", strings.Join(tried, "; "))
}

// symbolsOf asks for the ABI version before it looks any other function up.
func symbolsOf(library uintptr) (found [len(symbolNames)]uintptr, err error) {
	version, err := purego.Dlsym(library, "moe_abi_version")
	if err != nil {
		return found, refused(ErrNotFound, "libmoe: the library found lacks the symbol %s", "moe_abi_version")
	}
	if has, _, _ := purego.SyscallN(version); uint32(has) != ABIVersion {
		return found, refused(ErrABI, "libmoe: found ABI version %d, wanted %d", uint32(has), uint32(ABIVersion))
	}
	for index, name := range symbolNames {
		if found[index], err = purego.Dlsym(library, name); err != nil {
			return found, refused(ErrNotFound, "libmoe: the library found lacks the symbol %s", name)
		}
	}
	return found, nil
}

func refused(status Status, format string, values ...any) error {
	return &Error{Status: status, Message: fmt.Sprintf(format, values...), Call: "moe_dl_open"}
}

func libc(name string) func() uintptr {
	return sync.OnceValue(func() uintptr {
		address, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		if err != nil {
			panic("moe: " + err.Error())
		}
		return address
	})
}

var callocAddress, freeAddress = libc("calloc"), libc("free")

func allocateC(bytes uintptr) unsafe.Pointer {
	made, _, _ := purego.SyscallN(callocAddress(), 1, bytes)
	return *(*unsafe.Pointer)(unsafe.Pointer(&made))
}

func freeC(memory unsafe.Pointer) { purego.SyscallN(freeAddress(), uintptr(memory)) }

func runTask(task uintptr, index int32, taskData unsafe.Pointer) {
	purego.SyscallN(task, uintptr(index), uintptr(taskData))
}

// callbacks makes the addresses once: there is a limit to their number.
var callbacks = sync.OnceValue(func() callbackAddresses {
	return callbackAddresses{
		log: purego.NewCallback(func(level int32, message *byte, handle uintptr) uintptr {
			logCallback(level, message, handle)
			return 0
		}),
		parallelFor: purego.NewCallback(func(nTasks int32, task uintptr, taskData unsafe.Pointer, handle uintptr) uintptr {
			parallelForCallback(nTasks, task, taskData, handle)
			return 0
		}),
		allocate: purego.NewCallback(allocateCallback),
		release: purego.NewCallback(func(memory unsafe.Pointer, bytes, alignment uint64, space int32, stream unsafe.Pointer,
			handle uintptr) uintptr {
			releaseCallback(memory, bytes, alignment, space, stream, handle)
			return 0
		}),
		progress: purego.NewCallback(progressCallback),
	}
})
