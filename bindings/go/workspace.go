package moe

import "unsafe"

// Workspace is scratch: one per goroutine or stream that calls at the same time.
type Workspace struct{ *Handle }

// WorkspaceOptions are moe_workspace_desc. Sizes left 0 are what the plan needs at its MaxTokens.
type WorkspaceOptions struct {
	Runtime      *Runtime
	Device       DeviceKind
	DeviceIndex  int32
	DeviceBytes  uint64
	DeviceMemory unsafe.Pointer // nil: from the allocator
	HostBytes    uint64
	HostMemory   unsafe.Pointer // nil: from the allocator; memory of C, or pinned until Close
	Stream       unsafe.Pointer
}

// NewWorkspace makes one; plan or options may be nil.
func NewWorkspace(plan *Plan, options *WorkspaceOptions) (*Workspace, error) {
	if options == nil {
		options = &WorkspaceOptions{}
	}
	var memory memory
	defer memory.free()
	desc := (*moe_workspace_desc)(memory.allocate(sizeof_moe_workspace_desc))
	desc.struct_size = uint32(sizeof_moe_workspace_desc)
	desc.device, desc.device_index = moe_device_kind(options.Device), int32(options.DeviceIndex)
	desc.device_bytes, desc.device_memory = uint64(options.DeviceBytes), options.DeviceMemory
	desc.host_bytes, desc.host_memory = uint64(options.HostBytes), options.HostMemory
	desc.stream = options.Stream
	var made *moe_workspace
	err := using([]*Handle{options.Runtime.base(), plan.base()}, func(p []unsafe.Pointer) error {
		desc.plan = (*moe_plan)(p[1])
		return call("moe_workspace_create", func() moe_status {
			return moe_workspace_create((*moe_runtime)(p[0]), desc, &made)
		})
	})
	if err != nil {
		return nil, err
	}
	destroy := func(pointer unsafe.Pointer) { moe_workspace_destroy((*moe_workspace)(pointer)) }
	after := []func(){options.Runtime.kept().keep()}
	if plan != nil {
		after = append(after, plan.hooks.keep())
	}
	return &Workspace{newHandle("Workspace", unsafe.Pointer(made), destroy, after...)}, nil
}

func (w *Workspace) base() *Handle {
	if w == nil {
		return nil
	}
	return w.Handle
}

// Status is what went wrong at run time in calls that have finished, and how many slots or rows were skipped. It is then forgotten.
func (w *Workspace) Status() (Faults, int64, error) {
	found := moe_workspace_faults{struct_size: uint32(sizeof_moe_workspace_faults)}
	err := using([]*Handle{w.Handle}, func(p []unsafe.Pointer) error {
		return call("moe_workspace_status", func() moe_status {
			return moe_workspace_status((*moe_workspace)(p[0]), &found)
		})
	})
	return Faults(found.faults), int64(found.n_skipped), err
}
