package moe

import (
	"fmt"
	"sync"
)

// Layer is a plan, its weights, and workspaces for as many goroutines as call at once.
type Layer struct {
	Plan    *Plan
	Weights *Weights
	Hidden  int

	options *PlanOptions
	mutex   sync.Mutex
	idle    []*Workspace
	closed  bool
}

// OpenLayer opens a checkpoint and loads its first MoE layer, or options.CheckpointLayer if that is not 0, on the CPU unless
// options say otherwise; options may be nil, and give float32 and 4096 tokens where they say nothing.
func OpenLayer(path string, options *PlanOptions) (*Layer, error) {
	var chosen PlanOptions
	if options != nil {
		chosen = *options
	}
	if chosen.Device == DeviceAuto {
		chosen.Device = DeviceCPU
	}
	if chosen.XType == TypeNone {
		chosen.XType = TypeF32
	}
	if chosen.MaxTokens == 0 {
		chosen.MaxTokens = 4096
	}
	checkpoint, err := OpenCheckpoint(path, &CheckpointOptions{Runtime: chosen.Runtime})
	if err != nil {
		return nil, err
	}
	defer checkpoint.Close()
	chosen.Checkpoint = checkpoint
	if chosen.CheckpointLayer == 0 {
		layers, err := checkpoint.Layers()
		if err != nil {
			return nil, err
		}
		if len(layers) == 0 {
			return nil, fmt.Errorf("%s has no MoE layer: %w", path, ErrNotFound)
		}
		chosen.CheckpointLayer = layers[0]
	}
	return newLayer(&chosen)
}

func newLayer(options *PlanOptions) (*Layer, error) {
	plan, err := NewPlan(options)
	if err != nil {
		return nil, err
	}
	shape, err := plan.Shape()
	if err != nil {
		plan.Close()
		return nil, err
	}
	weights, err := LoadCheckpoint(plan, options.Checkpoint, options.CheckpointLayer, nil)
	if err != nil {
		plan.Close()
		return nil, err
	}
	options.Checkpoint = nil
	return &Layer{Plan: plan, Weights: weights, Hidden: int(shape.Hidden), options: options}, nil
}

// Forward is x [T, hidden] -> out [T, hidden] in float32. Any number of goroutines may call it.
func (l *Layer) Forward(x, out []float32) error {
	return l.Run(&ForwardArgs{X: Of(x), Out: Of(out)})
}

// Run is Forward with all its arguments, in a workspace of the layer. Slots that were left out, such as those of ids that the
// layer does not have, are a *FaultError; everything else was computed then. On a GPU the error may be that of an earlier call,
// whose work has ended since.
func (l *Layer) Run(args *ForwardArgs) error {
	workspace, err := l.take()
	if err != nil {
		return err
	}
	defer l.give(workspace)
	if err := Forward(l.Plan, l.Weights, workspace, args); err != nil {
		return err
	}
	return faultsOf(workspace)
}

// Faults is a *FaultError if slots were left out by calls that have ended since they were last told of, or nil. A program with
// a GPU asks after it has synchronized the stream.
func (l *Layer) Faults() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	all := FaultError{}
	for _, workspace := range l.idle {
		faults, skipped, err := workspace.Status()
		if err != nil {
			return err
		}
		all.Faults |= faults
		all.NSkipped += skipped
	}
	if all.Faults == 0 {
		return nil
	}
	return &all
}

func faultsOf(workspace *Workspace) error {
	faults, skipped, err := workspace.Status()
	if err == nil && faults != 0 {
		err = &FaultError{faults, skipped}
	}
	return err
}

func (l *Layer) take() (*Workspace, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		return nil, fmt.Errorf("Layer: %w", ErrClosed)
	}
	if last := len(l.idle) - 1; last >= 0 {
		workspace := l.idle[last]
		l.idle = l.idle[:last]
		return workspace, nil
	}
	return NewWorkspace(l.Plan, &WorkspaceOptions{Runtime: l.options.Runtime})
}

func (l *Layer) give(workspace *Workspace) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed {
		workspace.Close()
		return
	}
	l.idle = append(l.idle, workspace)
}

// Close ends plan, weights and workspaces; twice is harmless.
func (l *Layer) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.closed = true
	for _, one := range l.idle {
		one.Close()
	}
	l.idle = nil
	l.Weights.Close()
	return l.Plan.Close()
}
