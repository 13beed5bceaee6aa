package moe

import (
	"fmt"
	"sync"
	"unsafe"
)

// Weights are the tensors of one layer in a plan's layout. They refer to no plan.
type Weights struct {
	*Handle
	borrows bool
	mutex   sync.Mutex
	held    map[[2]int32]*memory // what updates of borrowed weights lie in
}

// LoadOptions say how weights are loaded. With OwnBorrow the matrices are read where they lie until Close; slices of Go are pinned
// as long. Memory, for OwnCaller, takes the bytes.
type LoadOptions struct {
	Ownership   Ownership
	Memory      Array
	MemorySpace Space // of Memory that is no slice, for LoadWeights
	Stream      unsafe.Pointer
	Progress    Progress
}

// LoadWeights takes tensors given by hand; options may be nil.
func LoadWeights(plan *Plan, tensors []*Tensor, options *LoadOptions) (*Weights, error) {
	if options == nil {
		options = &LoadOptions{}
	}
	kept := new(memory)
	desc, err := weightsDesc(kept, tensors, options)
	if err != nil {
		kept.free()
		return nil, err
	}
	var made *moe_weights
	var after []func()
	err = using(append([]*Handle{plan.base()}, owners(tensors)...), func(p []unsafe.Pointer) error {
		set := func(hook uintptr) {
			desc.progress = callbacks().progress
			putNumber(&desc.progress_user_data, hook)
		}
		err := withProgress(options.Progress, set, func() error {
			return call("moe_weights_load", func() moe_status {
				return moe_weights_load((*moe_plan)(p[0]), desc, &made)
			})
		})
		if err == nil && options.Ownership == OwnBorrow {
			after = holdOpen(owners(tensors))
		}
		return err
	})
	if err != nil {
		kept.free()
		return nil, err
	}
	return newWeights(made, options, kept, append(after, plan.hooks.keep())), nil
}

// holdOpen keeps handles that are in use from ending before what it gives is called.
func holdOpen(handles []*Handle) []func() {
	var release []func()
	for _, one := range handles {
		if _, err := one.enter(); err == nil {
			release = append(release, one.leave)
		}
	}
	return release
}

// newWeights keeps the memory of the call where the weights go on using it.
func newWeights(made *moe_weights, options *LoadOptions, kept *memory, after []func()) *Weights {
	weights := &Weights{borrows: options.Ownership == OwnBorrow, held: map[[2]int32]*memory{}}
	held := weights.held
	after = append(after, func() {
		for _, one := range held {
			one.free()
		}
	})
	if options.Ownership == OwnCopy {
		kept.free()
	} else {
		after = append(after, kept.free)
	}
	destroy := func(pointer unsafe.Pointer) { moe_weights_destroy((*moe_weights)(pointer)) }
	weights.Handle = newHandle("Weights", unsafe.Pointer(made), destroy, after...)
	return weights
}

func weightsDesc(m *memory, tensors []*Tensor, options *LoadOptions) (*moe_weights_desc, error) {
	desc := (*moe_weights_desc)(m.allocate(sizeof_moe_weights_desc))
	desc.struct_size = uint32(sizeof_moe_weights_desc)
	desc.ownership = moe_ownership(options.Ownership)
	pointers := unsafe.Slice((**moe_tensor)(m.allocate(uintptr(len(tensors)+1)*unsafe.Sizeof(uintptr(0)))), len(tensors)+1)
	for i, one := range tensors {
		if one == nil {
			return nil, &ArgumentError{"tensors", fmt.Sprintf("[%d] is nil", i)}
		}
		made, err := one.inMemory(m)
		if err != nil {
			return nil, err
		}
		pointers[i] = made
	}
	desc.tensors, desc.n_tensors = &pointers[0], uint32(len(tensors))
	desc.memory, desc.memory_bytes = options.Memory.at(m, true), uint64(options.Memory.bytes())
	desc.memory_space = moe_space(options.MemorySpace)
	desc.stream = options.Stream
	return desc, nil
}

// WeightsSize is the bytes of memory that the tensors take under OwnCopy and OwnCaller.
func WeightsSize(plan *Plan, tensors []*Tensor) (uint64, error) {
	var memory memory
	defer memory.free()
	desc, err := weightsDesc(&memory, tensors, &LoadOptions{})
	if err != nil {
		return 0, err
	}
	var size uint64
	err = using(append([]*Handle{plan.base()}, owners(tensors)...), func(p []unsafe.Pointer) error {
		return call("moe_weights_size", func() moe_status {
			return moe_weights_size((*moe_plan)(p[0]), desc, &size)
		})
	})
	return uint64(size), err
}

// LoadCheckpoint loads one layer of a checkpoint, only the bytes that the plan needs; options may be nil.
func LoadCheckpoint(plan *Plan, checkpoint *Checkpoint, layer int32, options *LoadOptions) (*Weights, error) {
	if options == nil {
		options = &LoadOptions{}
	}
	kept := new(memory)
	desc := (*moe_load_options)(kept.allocate(sizeof_moe_load_options))
	desc.struct_size = uint32(sizeof_moe_load_options)
	desc.ownership = moe_ownership(options.Ownership)
	desc.memory, desc.memory_bytes = options.Memory.at(kept, true), uint64(options.Memory.bytes())
	desc.stream = options.Stream
	var made *moe_weights
	err := using([]*Handle{plan.base(), checkpoint.base()}, func(p []unsafe.Pointer) error {
		set := func(hook uintptr) {
			desc.progress = callbacks().progress
			putNumber(&desc.progress_user_data, hook)
		}
		return withProgress(options.Progress, set, func() error {
			return call("moe_weights_load_checkpoint", func() moe_status {
				source := (*moe_checkpoint)(p[1])
				return moe_weights_load_checkpoint((*moe_plan)(p[0]), source, int32(layer), desc, &made)
			})
		})
	})
	if err != nil {
		kept.free()
		return nil, err
	}
	return newWeights(made, options, kept, []func(){plan.hooks.keep(), checkpoint.hooks.keep()}), nil
}

// OpenWeights reads packed weights from a file that Save wrote.
func OpenWeights(plan *Plan, path string) (*Weights, error) {
	kept := new(memory)
	defer kept.free()
	var made *moe_weights
	err := plan.call("moe_weights_open", func(plan *moe_plan) moe_status {
		return moe_weights_open(plan, kept.text(path), &made)
	})
	if err != nil {
		return nil, err
	}
	return newWeights(made, &LoadOptions{}, kept, []func(){plan.hooks.keep()}), nil
}

func (w *Weights) base() *Handle {
	if w == nil {
		return nil
	}
	return w.Handle
}

func (w *Weights) call(name string, run func(weights *moe_weights) moe_status) error {
	return using([]*Handle{w.Handle}, func(p []unsafe.Pointer) error {
		return call(name, func() moe_status { return run((*moe_weights)(p[0])) })
	})
}

// Save writes packed weights to a file.
func (w *Weights) Save(path string) error {
	var memory memory
	defer memory.free()
	return w.call("moe_weights_save", func(weights *moe_weights) moe_status {
		return moe_weights_save(weights, memory.text(path))
	})
}

// Update replaces the tensor of one expert, or of a role without experts. No Forward may be running on the CPU.
func (w *Weights) Update(tensor *Tensor, stream unsafe.Pointer) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	kept := new(memory)
	desc, err := tensor.inMemory(kept)
	if err == nil {
		err = using(append([]*Handle{w.Handle}, owners([]*Tensor{tensor})...), func(p []unsafe.Pointer) error {
			err := call("moe_weights_update", func() moe_status {
				return moe_weights_update((*moe_weights)(p[0]), desc, stream)
			})
			if err == nil && w.borrows {
				w.hold(tensor, kept)
				kept = new(memory)
			}
			return err
		})
	}
	kept.free()
	return err
}

// hold keeps what the tensor lies in for as long as borrowed weights read it.
func (w *Weights) hold(tensor *Tensor, kept *memory) {
	kept.after = holdOpen(owners([]*Tensor{tensor}))
	place := [2]int32{int32(tensor.Role), tensor.Expert}
	if before := w.held[place]; before != nil {
		before.free()
	}
	w.held[place] = kept
}

// LayoutID is equal for weights and plans that go together.
func (w *Weights) LayoutID() ([16]byte, error) {
	var id [16]uint8
	err := w.call("moe_weights_layout_id", func(weights *moe_weights) moe_status {
		return moe_weights_layout_id(weights, &id[0])
	})
	return *(*[16]byte)(unsafe.Pointer(&id)), err
}

// MemoryReport is moe_memory_report.
type MemoryReport struct {
	NLocalExperts                       uint32
	HostBytes, PinnedBytes, DeviceBytes uint64
	BorrowedBytes, BookkeepingBytes     uint64
	RoleBytes                           map[Role]uint64
}

// Memory is where the bytes are.
func (w *Weights) Memory() (MemoryReport, error) {
	report := moe_memory_report{struct_size: uint32(sizeof_moe_memory_report)}
	err := w.call("moe_weights_memory", func(weights *moe_weights) moe_status {
		return moe_weights_memory(weights, &report)
	})
	found := MemoryReport{
		NLocalExperts: uint32(report.n_local_experts), HostBytes: uint64(report.host_bytes),
		PinnedBytes: uint64(report.pinned_bytes), DeviceBytes: uint64(report.device_bytes),
		BorrowedBytes: uint64(report.borrowed_bytes), BookkeepingBytes: uint64(report.bookkeeping_bytes),
		RoleBytes: map[Role]uint64{},
	}
	for role, bytes := range report.role_bytes {
		if bytes != 0 {
			found.RoleBytes[Role(role)] = uint64(bytes)
		}
	}
	return found, err
}
