package moe

import (
	"encoding/json"
	"errors"
	"sync"
	"unsafe"
)

// Slice is the part of a layer that a plan computes; one needs PlanOptions.Partial. Zero counts leave a dimension whole.
type Slice struct {
	HasExpertRange           bool
	ExpertBegin, ExpertCount int32
	ExpertToLocal            []int32 // instead of a range: local index or -1 for every expert
	HasIntermediateRange     bool
	IntermediateBegin        int32
	IntermediateCount        int32
	HasSharedRange           bool
	SharedBegin, SharedCount int32
}

// PlanOptions are moe_plan_desc. XType and MaxTokens are required, and a Layer with Formats or a Checkpoint.
type PlanOptions struct {
	Runtime                *Runtime
	Device                 DeviceKind
	DeviceIndex            int32
	XType                  Type
	RouterInputType        Type
	OutType                Type
	IntermediateType       Type
	Stages                 Stage // bits
	Checkpoint             *Checkpoint
	CheckpointLayer        int32
	Layer                  *LayerDesc
	Formats                map[Role]Format
	Partial                bool
	Slice                  *Slice
	MaxTokens              int64
	MaxWorkspaceBytes      uint64
	Residency              Residency
	ActivationQuantization ActivationQuantization
	BatchInvariant         bool
	Unfused                bool
	KernelFilter           string
	TuningPath             string
}

func (o *PlanOptions) desc(m *memory) *moe_plan_desc {
	desc := (*moe_plan_desc)(m.allocate(sizeof_moe_plan_desc))
	desc.struct_size = uint32(sizeof_moe_plan_desc)
	desc.device, desc.device_index = moe_device_kind(o.Device), int32(o.DeviceIndex)
	desc.x_type, desc.out_type = moe_type(o.XType), moe_type(o.OutType)
	desc.router_input_type, desc.intermediate_type = moe_type(o.RouterInputType), moe_type(o.IntermediateType)
	desc.stages, desc.checkpoint_layer = uint32(o.Stages), int32(o.CheckpointLayer)
	desc.partial, desc.max_tokens = flag(o.Partial), int64(o.MaxTokens)
	desc.max_workspace_bytes = uint64(o.MaxWorkspaceBytes)
	desc.residency = moe_residency(o.Residency)
	desc.activation_quantization = moe_activation_quantization(o.ActivationQuantization)
	desc.batch_invariant, desc.unfused = flag(o.BatchInvariant), flag(o.Unfused)
	desc.kernel_filter, desc.tuning_path = m.optional(o.KernelFilter), m.optional(o.TuningPath)
	if o.Layer != nil {
		desc.layer = o.Layer.inMemory(m)
	}
	if o.Slice != nil {
		desc.slice = o.Slice.inMemory(m)
	}
	o.setFormats(desc, m)
	return desc
}

func (o *PlanOptions) setFormats(desc *moe_plan_desc, m *memory) {
	count := 0
	for role := range o.Formats {
		if int(role) >= count {
			count = int(role) + 1
		}
	}
	if count == 0 {
		return
	}
	pointers := unsafe.Slice((**moe_format)(m.allocate(uintptr(count)*unsafe.Sizeof(uintptr(0)))), count)
	for role, format := range o.Formats {
		if role >= 0 {
			one := format
			pointers[role] = one.inMemory(m)
		}
	}
	desc.formats, desc.n_formats = &pointers[0], uint32(count)
}

func (s *Slice) inMemory(m *memory) *moe_slice {
	made := (*moe_slice)(m.allocate(sizeof_moe_slice))
	made.struct_size = uint32(sizeof_moe_slice)
	made.has_expert_range = flag(s.HasExpertRange)
	made.expert_begin, made.expert_count = int32(s.ExpertBegin), int32(s.ExpertCount)
	made.expert_to_local = (*int32)(Of(s.ExpertToLocal).at(m, false))
	made.n_expert_to_local = int32(len(s.ExpertToLocal))
	made.has_intermediate_range = flag(s.HasIntermediateRange)
	made.intermediate_begin, made.intermediate_count = int32(s.IntermediateBegin), int32(s.IntermediateCount)
	made.has_shared_range = flag(s.HasSharedRange)
	made.shared_begin, made.shared_count = int32(s.SharedBegin), int32(s.SharedCount)
	return made
}

// call runs a function of a runtime and a plan description.
func (o *PlanOptions) call(name string, run func(*moe_runtime, *moe_plan_desc) moe_status) error {
	var memory memory
	defer memory.free()
	desc := o.desc(&memory)
	return using([]*Handle{o.Runtime.base(), o.Checkpoint.base()}, func(p []unsafe.Pointer) error {
		desc.checkpoint = (*moe_checkpoint)(p[1])
		return call(name, func() moe_status { return run((*moe_runtime)(p[0]), desc) })
	})
}

// Plan is every decision about a layer, made once.
type Plan struct {
	*Handle
	hooks *hooks

	once  sync.Once
	facts facts
	err   error
}

// NewPlan validates and chooses. Nothing of the options is referred to afterwards.
func NewPlan(options *PlanOptions) (*Plan, error) {
	var made *moe_plan
	err := options.call("moe_plan_create", func(runtime *moe_runtime, desc *moe_plan_desc) moe_status {
		return moe_plan_create(runtime, desc, &made)
	})
	if err != nil {
		return nil, err
	}
	hooks := options.Runtime.kept()
	destroy := func(pointer unsafe.Pointer) { moe_plan_destroy((*moe_plan)(pointer)) }
	return &Plan{Handle: newHandle("Plan", unsafe.Pointer(made), destroy, hooks.keep()), hooks: hooks}, nil
}

// Supports is the error that NewPlan would return, nil if it would succeed. It makes nothing.
func Supports(options *PlanOptions) error {
	return options.call("moe_supports", func(runtime *moe_runtime, desc *moe_plan_desc) moe_status {
		return moe_supports(runtime, desc)
	})
}

// PlanKey is equal for options that make equal plans, so that layers may share one.
func PlanKey(options *PlanOptions) ([16]byte, error) {
	var key [16]uint8
	err := options.call("moe_plan_key", func(runtime *moe_runtime, desc *moe_plan_desc) moe_status {
		return moe_plan_key(runtime, desc, &key[0])
	})
	return *(*[16]byte)(unsafe.Pointer(&key)), err
}

func (p *Plan) base() *Handle {
	if p == nil {
		return nil
	}
	return p.Handle
}

func (p *Plan) call(name string, run func(plan *moe_plan) moe_status) error {
	return using([]*Handle{p.Handle}, func(pointers []unsafe.Pointer) error {
		return call(name, func() moe_status { return run((*moe_plan)(pointers[0])) })
	})
}

// LayoutID is equal for plans and weights that go together.
func (p *Plan) LayoutID() ([16]byte, error) {
	var id [16]uint8
	err := p.call("moe_plan_layout_id", func(plan *moe_plan) moe_status { return moe_plan_layout_id(plan, &id[0]) })
	return *(*[16]byte)(unsafe.Pointer(&id)), err
}

// PlanDevice is the device of a plan, and why that.
type PlanDevice struct {
	Kind   DeviceKind
	Index  int32
	Reason string
}

// Device is the one chosen.
func (p *Plan) Device() (PlanDevice, error) {
	var kind moe_device_kind
	var index int32
	var reason *byte
	err := p.call("moe_plan_device", func(plan *moe_plan) moe_status {
		return moe_plan_device(plan, &kind, &index, &reason)
	})
	return PlanDevice{DeviceKind(kind), int32(index), goString(reason)}, err
}

// WorkspaceNeed is moe_workspace_need.
type WorkspaceNeed struct{ DeviceBytes, HostBytes, Alignment uint64 }

// WorkspaceSize is the scratch that calls with up to nTokens tokens need.
func (p *Plan) WorkspaceSize(nTokens int64) (WorkspaceNeed, error) {
	need := moe_workspace_need{struct_size: uint32(sizeof_moe_workspace_need)}
	err := p.call("moe_plan_workspace_size", func(plan *moe_plan) moe_status {
		return moe_plan_workspace_size(plan, int64(nTokens), &need)
	})
	return WorkspaceNeed{uint64(need.device_bytes), uint64(need.host_bytes), uint64(need.alignment)}, err
}

// Kernel is the name of the one that runs a stage for nTokens tokens.
func (p *Plan) Kernel(stage Stage, nTokens int64) (string, error) {
	var name *byte
	err := p.call("moe_plan_kernel", func(plan *moe_plan) moe_status {
		return moe_plan_kernel(plan, moe_stage(stage), int64(nTokens), &name)
	})
	return goString(name), err
}

// Candidate is moe_candidate.
type Candidate struct {
	Stage              Stage
	Chosen, Applicable bool
	Kernel             string
	ReasonCode, Reason string
}

// Candidates are the kernels that were looked at, best first within a stage, stages in order.
func (p *Plan) Candidates() ([]Candidate, error) {
	var found []Candidate
	for {
		one := moe_candidate{struct_size: uint32(sizeof_moe_candidate)}
		err := p.call("moe_candidates", func(plan *moe_plan) moe_status {
			return moe_candidates(plan, uint32(len(found)), &one)
		})
		if errors.Is(err, ErrNotFound) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, Candidate{Stage(one.stage), one.chosen != 0, one.applicable != 0, goString(one.kernel),
			goString(one.reason_code), goString(one.reason)})
	}
}

// Explain says what the plan is: ExplainText, or ExplainJSON (docs/explain.schema.json).
func (p *Plan) Explain(form ExplainForm) (string, error) {
	var size uint64
	explain := func(buffer *byte, capacity uint64) error {
		return p.call("moe_plan_explain", func(plan *moe_plan) moe_status {
			return moe_plan_explain(plan, moe_explain_form(form), buffer, capacity, &size)
		})
	}
	if err := explain(nil, 0); err != nil {
		return "", err
	}
	var memory memory
	defer memory.free()
	buffer := (*byte)(memory.allocate(uintptr(size)))
	err := explain(buffer, size)
	return goString(buffer), err
}

// facts is what this package reads of the explanation.
type facts struct {
	Layer struct {
		Hidden           int64 `json:"hidden"`
		NExperts         int64 `json:"n_experts"`
		NIdentityExperts int64 `json:"n_identity_experts"`
		TopK             int64 `json:"top_k"`
		Latent           int64 `json:"latent"`
	} `json:"layer"`
	Slice struct {
		Partial       bool     `json:"partial"`
		NLocalExperts int64    `json:"n_local_experts"`
		Intermediate  [2]int64 `json:"intermediate"`
	} `json:"slice"`
	Types struct {
		X           string `json:"x"`
		RouterInput string `json:"router_input"`
		Out         string `json:"out"`
	} `json:"types"`
	Weights struct {
		Matrices []struct {
			Role string `json:"role"`
		} `json:"matrices"`
	} `json:"weights"`
	Device struct {
		Kind string `json:"kind"`
	} `json:"device"`
}

// Shape is the sizes and types that the arrays of a plan's calls have.
type Shape struct {
	Hidden        int64
	Latent        int64 // Hidden where the layer has no latent
	TopK          int64
	NExperts      int64
	NAllExperts   int64 // with identity experts
	NLocalExperts int64
	NFeatures     int64 // of the slice before the activation: gate and up, or up alone
	OutWidth      int64 // of a reduced output

	XType, RouterInputType, OutType Type
	IsCPU                           bool
}

// Shape is read from the explanation, once.
func (p *Plan) Shape() (Shape, error) {
	p.once.Do(func() {
		text, err := p.Explain(ExplainJSON)
		if err == nil {
			err = json.Unmarshal([]byte(text), &p.facts)
		}
		p.err = err
	})
	return p.facts.shape(), p.err
}

func (f *facts) shape() Shape {
	layer, cut := f.Layer, f.Slice
	shape := Shape{Hidden: layer.Hidden, Latent: layer.Latent, TopK: layer.TopK, NExperts: layer.NExperts,
		NAllExperts: layer.NExperts + layer.NIdentityExperts, NLocalExperts: cut.NLocalExperts,
		NFeatures: cut.Intermediate[1], OutWidth: layer.Hidden, IsCPU: f.Device.Kind == "cpu",
		XType: typeNamed(f.Types.X), RouterInputType: typeNamed(f.Types.RouterInput), OutType: typeNamed(f.Types.Out)}
	if shape.Latent == 0 {
		shape.Latent = shape.Hidden
	}
	if cut.Partial {
		shape.OutWidth = shape.Latent
	}
	for _, matrix := range f.Weights.Matrices {
		if matrix.Role == "gate" {
			shape.NFeatures = 2 * cut.Intermediate[1]
		}
	}
	return shape
}

func typeNamed(name string) Type {
	for kind, one := range denseFormats {
		if one == name {
			return kind
		}
	}
	return TypeNone
}
