package moe

import (
	"errors"
	"unsafe"
)

// Checkpoint is a model on disk: a folder of safetensors, one such file, or GGUF.
type Checkpoint struct {
	*Handle
	hooks *hooks
}

// CheckpointOptions are moe_checkpoint_options.
type CheckpointOptions struct {
	Runtime        *Runtime
	IO             IO
	Family         string // "": from the config
	HasOrientation bool   // overrides what the family says of fused expert tensors
	Orientation    Orientation
	GateUpOrder    GateUpOrder
	Overrides      string // "": none; else fields of LayerDesc in place of what the files say: "top_k=4, gate_limit=none"
}

// OpenCheckpoint reads headers only; options may be nil.
func OpenCheckpoint(path string, options *CheckpointOptions) (*Checkpoint, error) {
	if options == nil {
		options = &CheckpointOptions{}
	}
	var memory memory
	defer memory.free()
	desc := (*moe_checkpoint_options)(memory.allocate(sizeof_moe_checkpoint_options))
	desc.struct_size = uint32(sizeof_moe_checkpoint_options)
	desc.io = moe_io(options.IO)
	desc.family = memory.optional(options.Family)
	desc.overrides = memory.optional(options.Overrides)
	desc.has_orientation = flag(options.HasOrientation)
	desc.orientation = moe_orientation(options.Orientation)
	desc.gate_up_order = moe_gate_up_order(options.GateUpOrder)
	var made *moe_checkpoint
	err := using([]*Handle{options.Runtime.base()}, func(p []unsafe.Pointer) error {
		return call("moe_checkpoint_open", func() moe_status {
			return moe_checkpoint_open((*moe_runtime)(p[0]), memory.text(path), desc, &made)
		})
	})
	if err != nil {
		return nil, err
	}
	hooks := options.Runtime.kept()
	destroy := func(pointer unsafe.Pointer) { moe_checkpoint_destroy((*moe_checkpoint)(pointer)) }
	return &Checkpoint{newHandle("Checkpoint", unsafe.Pointer(made), destroy, hooks.keep()), hooks}, nil
}

func flag(value bool) int32 {
	if value {
		return 1
	}
	return 0
}

func (c *Checkpoint) base() *Handle {
	if c == nil {
		return nil
	}
	return c.Handle
}

func (c *Checkpoint) call(name string, run func(checkpoint *moe_checkpoint) moe_status) error {
	return using([]*Handle{c.Handle}, func(p []unsafe.Pointer) error {
		return call(name, func() moe_status { return run((*moe_checkpoint)(p[0])) })
	})
}

// CheckpointInfo is moe_checkpoint_info.
type CheckpointInfo struct {
	NLayers   int32 // MoE layers
	NFiles    int32
	IsGGUF    bool
	NTensors  uint64
	FileBytes uint64
	Family    string
	ModelType string // as the file has it
}

// Info describes the checkpoint.
func (c *Checkpoint) Info() (CheckpointInfo, error) {
	info := moe_checkpoint_info{struct_size: uint32(sizeof_moe_checkpoint_info)}
	err := c.call("moe_checkpoint_get_info", func(checkpoint *moe_checkpoint) moe_status {
		return moe_checkpoint_get_info(checkpoint, &info)
	})
	return CheckpointInfo{
		NLayers:   int32(info.n_layers),
		NFiles:    int32(info.n_files),
		IsGGUF:    info.is_gguf != 0,
		NTensors:  uint64(info.n_tensors),
		FileBytes: uint64(info.file_bytes),
		Family:    goString(&info.family[0]),
		ModelType: goString(&info.model_type[0]),
	}, err
}

// Layers are the decoder layers that are MoE layers, ascending.
func (c *Checkpoint) Layers() ([]int32, error) {
	info, err := c.Info()
	layers := make([]int32, info.NLayers)
	for i := 0; err == nil && i < len(layers); i++ {
		var layer int32
		err = c.call("moe_checkpoint_layer_at", func(checkpoint *moe_checkpoint) moe_status {
			return moe_checkpoint_layer_at(checkpoint, int32(i), &layer)
		})
		layers[i] = int32(layer)
	}
	return layers, err
}

// Layer describes a decoder layer. Change any field before planning: files leave things out.
func (c *Checkpoint) Layer(layer int32) (LayerDesc, error) {
	var found LayerDesc
	desc := moe_layer_desc{struct_size: uint32(sizeof_moe_layer_desc)}
	err := c.call("moe_checkpoint_layer", func(checkpoint *moe_checkpoint) moe_status {
		return moe_checkpoint_layer(checkpoint, int32(layer), &desc)
	})
	if err == nil {
		getWords(wordsOfLayer(&desc), &found)
	}
	return found, err
}

// Formats are those of the roles that the layer has.
func (c *Checkpoint) Formats(layer int32) (map[Role]Format, error) {
	var memory memory
	defer memory.free()
	pointers := unsafe.Slice((**moe_format)(memory.allocate(MOE_ROLE_COUNT*unsafe.Sizeof(uintptr(0)))), MOE_ROLE_COUNT)
	for role := range pointers {
		pointers[role] = new(Format).inMemory(&memory)
	}
	err := c.call("moe_checkpoint_formats", func(checkpoint *moe_checkpoint) moe_status {
		return moe_checkpoint_formats(checkpoint, int32(layer), &pointers[0], MOE_ROLE_COUNT)
	})
	if err != nil {
		return nil, err
	}
	found := map[Role]Format{}
	for role, one := range pointers {
		if one._type != MOE_TYPE_NONE {
			var format Format
			getWords(wordsOfFormat(one), &format)
			found[Role(role)] = format
		}
	}
	return found, nil
}

// Tensors of a layer, which point into the mapping: they are valid until the checkpoint is closed, and keep it from being collected.
func (c *Checkpoint) Tensors(layer int32) ([]*Tensor, error) {
	var tensors []*Tensor
	for {
		one, err := c.tensor(layer, len(tensors))
		if errors.Is(err, ErrNotFound) && len(tensors) > 0 {
			return tensors, nil
		}
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, one)
	}
}

func (c *Checkpoint) tensor(layer int32, index int) (*Tensor, error) {
	var memory memory
	defer memory.free()
	out := (*moe_tensor)(memory.allocate(sizeof_moe_tensor))
	format := (*moe_format)(memory.allocate(sizeof_moe_format))
	out.struct_size, format.struct_size = uint32(sizeof_moe_tensor), uint32(sizeof_moe_format)
	err := c.call("moe_checkpoint_tensor", func(checkpoint *moe_checkpoint) moe_status {
		return moe_checkpoint_tensor(checkpoint, int32(layer), uint32(index), out, format)
	})
	if err != nil {
		return nil, err
	}
	return tensorOf(c, out), nil
}
