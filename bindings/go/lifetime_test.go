package moe

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// countingAllocator keeps a ledger of what handles take and give back.
type countingAllocator struct {
	sync.Mutex
	living   map[unsafe.Pointer]allocation
	total    uint64
	problems []string
}

type allocation struct {
	bytes, alignment uint64
	space            Space
	memory           []byte
}

func newCountingAllocator() *countingAllocator {
	return &countingAllocator{living: map[unsafe.Pointer]allocation{}}
}

func (c *countingAllocator) Allocate(bytes, alignment uint64, space Space, stream unsafe.Pointer) unsafe.Pointer {
	memory, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	c.Lock()
	defer c.Unlock()
	address := unsafe.Pointer(&memory[0])
	c.living[address] = allocation{bytes, alignment, space, memory}
	c.total += bytes
	if space != SpaceHost || alignment > 4096 {
		c.problems = append(c.problems, fmt.Sprint(bytes, alignment, space))
	}
	return address
}

func (c *countingAllocator) Release(memory unsafe.Pointer, bytes, alignment uint64, space Space, stream unsafe.Pointer) {
	c.Lock()
	defer c.Unlock()
	one := c.living[memory]
	if one.bytes != bytes || one.alignment != alignment || one.space != space {
		c.problems = append(c.problems, fmt.Sprint("never allocated: ", bytes, alignment, space))
		return
	}
	delete(c.living, memory)
	_ = syscall.Munmap(one.memory)
}

func (c *countingAllocator) state() (living int, total uint64, problems []string) {
	c.Lock()
	defer c.Unlock()
	return len(c.living), c.total, c.problems
}

func newRuntime(t testing.TB, options *RuntimeOptions) *Runtime {
	t.Helper()
	made, err := NewRuntime(options)
	must(t, err)
	return made
}

func TestClosingTwiceIsHarmless(t *testing.T) {
	data := shows(t, "LIFE-01")
	means := newRuntime(t, &RuntimeOptions{NThreads: 1})
	g := readGolden(t, qwen3).open(t, means)
	handles := []*Handle{means.Handle, g.checkpoint.Handle, g.plan.Handle, g.loaded.Handle, g.workspace.Handle}
	for i, name := range texts(data["handles"]) {
		if !strings.EqualFold(handles[i].kind, name) || handles[i].Closed() {
			t.Fatal(name)
		}
		must(t, handles[i].Close())
		must(t, handles[i].Close())
		if !handles[i].Closed() {
			t.Fatal(name)
		}
	}
}

func TestAClosedHandleIsAnError(t *testing.T) {
	shows(t, "LIFE-02")
	means := newRuntime(t, nil)
	g := readGolden(t, qwen3).open(t, means)
	living := openGolden(t, qwen3, nil)
	means.Close()
	g.close()
	options := g.options(g.checkpoint)
	args := &ForwardArgs{X: Of(g.x), Out: Of(make([]float32, len(g.x)))}
	uses := map[string]func() error{
		"Runtime":    func() error { _, err := OpenCheckpoint(g.path, &CheckpointOptions{Runtime: means}); return err },
		"Checkpoint": func() error { _, err := g.checkpoint.Info(); return err },
		"Plan":       func() error { _, err := g.plan.LayoutID(); return err },
		"Weights":    func() error { _, err := g.loaded.Memory(); return err },
		"Workspace":  func() error { _, _, err := g.workspace.Status(); return err },
	}
	for kind, use := range uses {
		mustBe(t, use(), ErrClosed, kind)
	}
	_, err := NewPlan(options)
	mustBe(t, err, ErrClosed, "Checkpoint")
	_, err = NewWorkspace(g.plan, nil)
	mustBe(t, err, ErrClosed, "Plan")
	_, err = LoadCheckpoint(living.plan, g.checkpoint, g.layer, nil)
	mustBe(t, err, ErrClosed, "Checkpoint")
	mustBe(t, Forward(g.plan, g.loaded, g.workspace, args), ErrClosed, "Plan")
	mustBe(t, Forward(living.plan, g.loaded, living.workspace, args), ErrClosed, "Weights")
	mustBe(t, Forward(nil, living.loaded, living.workspace, args), ErrInvalidArgument, "plan")
	mustBe(t, Forward(living.plan, nil, living.workspace, args), ErrInvalidArgument, "weights")
}

func TestClosingDuringACallWaitsForIt(t *testing.T) {
	shows(t, "LIFE-02")
	g := openGolden(t, qwen3, nil)
	closes := func(done, total uint64) bool { g.plan.Close(); return false }
	weights, err := LoadCheckpoint(g.plan, g.checkpoint, g.layer, &LoadOptions{Progress: closes})
	must(t, err)
	defer weights.Close()
	_, err = g.plan.Kernel(StageExperts, 1)
	mustBe(t, err, ErrClosed)
}

func TestAnyOrderOfClosing(t *testing.T) {
	data := shows(t, "LIFE-03")
	for _, ownership := range []Ownership{OwnCopy, OwnBorrow} {
		g := readGolden(t, data["fixture"].(string))
		means := newRuntime(t, nil)
		checkpoint, err := OpenCheckpoint(g.path, &CheckpointOptions{Runtime: means})
		must(t, err)
		options := g.options(checkpoint)
		options.Runtime = means
		first, err := NewPlan(options)
		must(t, err)
		second, err := NewPlan(options)
		must(t, err)
		weights, err := LoadCheckpoint(first, checkpoint, g.layer, &LoadOptions{Ownership: ownership})
		must(t, err)
		means.Close()
		checkpoint.Close()
		first.Close()
		workspace, err := NewWorkspace(second, nil)
		must(t, err)
		out := filled(len(g.y), float32(math.NaN()))
		must(t, Forward(second, weights, workspace, &ForwardArgs{X: Of(g.x), Out: Of(out)}))
		g.near(t, out, data["relative_l2"].(float64))
		weights.Close()
		second.Close()
		if faults, skipped, err := workspace.Status(); faults != 0 || skipped != 0 || err != nil {
			t.Fatal(faults, skipped, err)
		}
		workspace.Close()
	}
}

func TestGarbageGivesItsMemoryBack(t *testing.T) {
	shows(t, "LIFE-04")
	allocator := newCountingAllocator()
	func() {
		g := readGolden(t, qwen3).open(t, newRuntime(t, &RuntimeOptions{Allocator: allocator, NThreads: 2}))
		g.near(t, g.forward(t, &ForwardArgs{}), 1e-5)
		if living, _, _ := allocator.state(); living == 0 {
			t.Fatal("nothing came from the allocator")
		}
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		if living, _, problems := allocator.state(); living == 0 && problems == nil {
			return
		}
	}
	t.Fatal(allocator.state())
}

func TestManyGoroutinesOnOnePlan(t *testing.T) {
	data := shows(t, "THR-01")
	g := openGolden(t, data["fixture"].(string), nil)
	wanted := g.forward(t, &ForwardArgs{})
	g.near(t, wanted, 1e-5)
	inParallel(t, int(data["threads"].(int64)), func(int) error {
		workspace, err := NewWorkspace(g.plan, nil)
		if err != nil {
			return err
		}
		defer workspace.Close()
		for round := int64(0); round < data["rounds"].(int64); round++ {
			out := make([]float32, len(g.y))
			if err := Forward(g.plan, g.loaded, workspace, &ForwardArgs{X: Of(g.x), Out: Of(out)}); err != nil {
				return err
			}
			if !same(out, wanted) {
				return errors.New("other bits")
			}
		}
		return nil
	})
}

func TestTheNumberOfThreadsOfACall(t *testing.T) {
	shows(t, "THR-01")
	g := openGolden(t, qwen3, nil)
	wanted := g.forward(t, &ForwardArgs{})
	for _, n := range []int32{1, 2, 1000} {
		if !same(g.forward(t, &ForwardArgs{NThreads: n}), wanted) {
			t.Errorf("%d threads: other bits", n)
		}
	}
	out := make([]float32, len(g.y))
	err := Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of(g.x), Out: Of(out), NThreads: -1})
	mustBe(t, err, ErrInvalidArgument, "n_threads is -1")
}

func TestALayerServesManyGoroutines(t *testing.T) {
	shows(t, "THR-01")
	g := readGolden(t, qwen3)
	layer, err := OpenLayer(g.path, &PlanOptions{CheckpointLayer: g.layer})
	must(t, err)
	inParallel(t, 4, func(int) error {
		for round := 0; round < 10; round++ {
			out := make([]float32, len(g.y))
			if err := layer.Forward(g.x, out); err != nil {
				return err
			}
			if relativeL2(t, out, g.y, g.tokens) > 1e-5 {
				return errors.New("another output")
			}
		}
		return nil
	})
	must(t, layer.Close())
	must(t, layer.Close())
	mustBe(t, layer.Forward(g.x, g.y), ErrClosed)
}

func TestAWorkspaceInUseIsBusy(t *testing.T) {
	data := shows(t, "THR-02")
	var g *golden
	var seen error
	tries := 0
	parallelFor := func(n int, task func(int)) {
		if tries == 0 {
			tries++
			seen = Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of(g.x), Out: Of(make([]float32, len(g.x)))})
		}
		for i := 0; i < n; i++ {
			task(i)
		}
	}
	means := newRuntime(t, &RuntimeOptions{ParallelFor: parallelFor, NThreads: 4})
	defer means.Close()
	g = openGolden(t, qwen3, means)
	g.near(t, g.forward(t, &ForwardArgs{}), 1e-5)
	mustBe(t, seen, Status(data["status"].(int64)))
	mustBe(t, seen, ErrBusy)
}

func TestForwardByGoroutinesOfTheCaller(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	out := filled(len(g.y), float32(math.NaN()))
	args := &ForwardArgs{X: Of(g.x), Out: Of(out)}
	if slicesAreCopied {
		mustBe(t, ForwardSPMD(g.plan, g.loaded, g.workspace, args, 0, 1), ErrInvalidArgument, "X")
		return
	}
	inParallel(t, 3, func(number int) error {
		return ForwardSPMD(g.plan, g.loaded, g.workspace, args, int32(number), 3)
	})
	g.near(t, out, 1e-5)
}
