package moe

import (
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
	hooks.handle = newHandleNumber(hooks)
	release := hooks.keep()
	desc := options.desc(&memory, uintptr(hooks.handle))
	var made *moe_runtime
	err := call("moe_runtime_create", func() moe_status { return moe_runtime_create(desc, &made) })
	if err != nil {
		release()
		return nil, err
	}
	destroy := func(pointer unsafe.Pointer) { moe_runtime_destroy((*moe_runtime)(pointer)) }
	return &Runtime{newHandle("Runtime", unsafe.Pointer(made), destroy, release), hooks}, nil
}

func (o *RuntimeOptions) desc(memory *memory, hooks uintptr) *moe_runtime_desc {
	desc := (*moe_runtime_desc)(memory.allocate(sizeof_moe_runtime_desc))
	desc.struct_size = uint32(sizeof_moe_runtime_desc)
	desc.n_threads = int32(o.NThreads)
	desc.log_level = moe_log_level(o.LogLevel)
	desc.cublaslt_path = memory.optional(o.CublasltPath)
	desc.nccl_path = memory.optional(o.NCCLPath)
	if o.Log != nil {
		desc.log = callbacks().log
		putNumber(&desc.log_user_data, hooks)
	}
	if o.ParallelFor != nil {
		desc.parallel_for = callbacks().parallelFor
		putNumber(&desc.parallel_for_user_data, hooks)
	}
	if o.Allocator != nil {
		allocator := (*moe_allocator)(memory.allocate(sizeof_moe_allocator))
		allocator.struct_size = uint32(sizeof_moe_allocator)
		allocator.allocate, allocator.release = callbacks().allocate, callbacks().release
		putNumber(&allocator.user_data, hooks)
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
	var count int32
	err := call("moe_device_count", func() moe_status { return moe_device_count(moe_device_kind(kind), &count) })
	return int32(count), err
}

// GetDeviceInfo describes a device.
func GetDeviceInfo(kind DeviceKind, index int32) (DeviceInfo, error) {
	info := moe_device_info{struct_size: uint32(sizeof_moe_device_info)}
	err := call("moe_device_get_info", func() moe_status {
		return moe_device_get_info(moe_device_kind(kind), int32(index), &info)
	})
	return DeviceInfo{
		Kind:        DeviceKind(info.kind),
		Index:       int32(info.index),
		NCores:      int32(info.n_cores),
		MemoryBytes: uint64(info.memory_bytes),
		ArchMajor:   int32(info.arch_major),
		ArchMinor:   int32(info.arch_minor),
		Name:        goString(&info.name[0]),
		Features:    goString(&info.features[0]),
	}, err
}
