package moe

// #include "moego.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Runtime is memory, threads and log. Where a function takes one, nil is the process default.
type Runtime struct {
	*Handle
	hooks *hooks
}

// RuntimeOptions are moe_runtime_desc; zero fields are defaults. The functions may be called from any thread, and must not end
// their goroutine (runtime.Goexit, testing's Fatal).
type RuntimeOptions struct {
	NThreads     int32 // CPU threads, the caller's included; 0: one per core that the process may use
	Log          func(level LogLevel, line string)
	LogLevel     LogLevel
	Allocator    Allocator
	ParallelFor  func(nTasks int, task func(index int)) // runs task for every index below nTasks, on any goroutines
	OnPanic      func(*PanicError)                      // a panic in one of the above; nil: standard error
	CublasltPath string
	NCCLPath     string
}

// NewRuntime makes one; options may be nil.
func NewRuntime(options *RuntimeOptions) (*Runtime, error) {
	if options == nil {
		options = &RuntimeOptions{}
	}
	var memory memory
	defer memory.free()
	hooks := &hooks{log: options.Log, allocator: options.Allocator, parallelFor: options.ParallelFor, onPanic: options.OnPanic}
	hooks.handle = cgo.NewHandle(hooks)
	release := hooks.keep()
	desc := options.desc(&memory, C.uintptr_t(hooks.handle))
	var made *C.moe_runtime
	err := call("moe_runtime_create", func() C.moe_status { return C.moe_runtime_create(desc, &made) })
	if err != nil {
		release()
		return nil, err
	}
	destroy := func(pointer unsafe.Pointer) { C.moe_runtime_destroy((*C.moe_runtime)(pointer)) }
	return &Runtime{newHandle("Runtime", unsafe.Pointer(made), destroy, release), hooks}, nil
}

func (o *RuntimeOptions) desc(memory *memory, hooks C.uintptr_t) *C.moe_runtime_desc {
	desc := (*C.moe_runtime_desc)(memory.allocate(C.sizeof_moe_runtime_desc))
	desc.struct_size = C.sizeof_moe_runtime_desc
	desc.n_threads = C.int32_t(o.NThreads)
	desc.log_level = C.moe_log_level(o.LogLevel)
	desc.cublaslt_path = memory.optional(o.CublasltPath)
	desc.nccl_path = memory.optional(o.NCCLPath)
	if o.Log != nil {
		C.moego_set_log(desc, hooks)
	}
	if o.ParallelFor != nil {
		C.moego_set_parallel_for(desc, hooks)
	}
	if o.Allocator != nil {
		allocator := (*C.moe_allocator)(memory.allocate(C.sizeof_moe_allocator))
		allocator.struct_size = C.sizeof_moe_allocator
		C.moego_set_allocator(allocator, hooks)
		desc.allocator = allocator
	}
	return desc
}

func (r *Runtime) base() *Handle {
	if r == nil {
		return nil
	}
	return r.Handle
}

func (r *Runtime) kept() *hooks {
	if r == nil {
		return nil
	}
	return r.hooks
}

// DeviceInfo is moe_device_info.
type DeviceInfo struct {
	Kind        DeviceKind
	Index       int32
	NCores      int32 // CPU: cores this process may use; CUDA: multiprocessors
	MemoryBytes uint64
	ArchMajor   int32 // CUDA: compute capability
	ArchMinor   int32
	Name        string
	Features    string // CPU: "avx2 fma f16c ..."
}

// DeviceCount is how many devices of a kind there are.
func DeviceCount(kind DeviceKind) (int32, error) {
	var count C.int32_t
	err := call("moe_device_count", func() C.moe_status { return C.moe_device_count(C.moe_device_kind(kind), &count) })
	return int32(count), err
}

// GetDeviceInfo describes a device.
func GetDeviceInfo(kind DeviceKind, index int32) (DeviceInfo, error) {
	info := C.moe_device_info{struct_size: C.sizeof_moe_device_info}
	err := call("moe_device_get_info", func() C.moe_status {
		return C.moe_device_get_info(C.moe_device_kind(kind), C.int32_t(index), &info)
	})
	return DeviceInfo{
		Kind:        DeviceKind(info.kind),
		Index:       int32(info.index),
		NCores:      int32(info.n_cores),
		MemoryBytes: uint64(info.memory_bytes),
		ArchMajor:   int32(info.arch_major),
		ArchMinor:   int32(info.arch_minor),
		Name:        C.GoString(&info.name[0]),
		Features:    C.GoString(&info.features[0]),
	}, err
}
