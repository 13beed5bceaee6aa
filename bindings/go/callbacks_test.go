package moe

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestProgressCountsAndCancels(t *testing.T) {
	data := shows(t, "CALL-01")
	allocator := newCountingAllocator()
	means := newRuntime(t, &RuntimeOptions{Allocator: allocator})
	defer means.Close()
	g := openGolden(t, qwen3, means)
	before, _, _ := allocator.state()
	var seen [][2]uint64
	load := func(stop int) error {
		progress := func(done, total uint64) bool {
			seen = append(seen, [2]uint64{done, total})
			return len(seen) == stop
		}
		weights, err := LoadCheckpoint(g.plan, g.checkpoint, g.layer, &LoadOptions{Progress: progress})
		if err == nil {
			weights.Close()
		} else if weights != nil {
			t.Error("weights are left behind")
		}
		return err
	}
	err := load(2)
	mustBe(t, err, Status(data["status"].(int64)))
	mustBe(t, err, ErrCancelled)
	if len(seen) != 2 || seen[0][0] > seen[1][0] || seen[1][0] > seen[1][1] || seen[0][1] == 0 {
		t.Fatal(seen)
	}
	if after, _, problems := allocator.state(); after != before || problems != nil {
		t.Fatal(before, after, problems)
	}
	must(t, load(-1))
	if last := seen[len(seen)-1]; last[0] != last[1] {
		t.Fatal(last)
	}
}

var errInCallback = errors.New("in the callback")

func TestAPanicInProgressIsTheErrorOfTheCall(t *testing.T) {
	shows(t, "CALL-02")
	g := openGolden(t, qwen3, nil)
	progress := func(done, total uint64) bool { panic(errInCallback) }
	_, err := LoadCheckpoint(g.plan, g.checkpoint, g.layer, &LoadOptions{Progress: progress})
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != errInCallback || !errors.Is(err, errInCallback) {
		t.Fatal(err)
	}
	if !strings.Contains(string(panicked.Stack), "callbacks_test.go") {
		t.Fatal(string(panicked.Stack))
	}
}

type brokenAllocator struct{}

func (brokenAllocator) Allocate(uint64, uint64, Space, unsafe.Pointer) unsafe.Pointer {
	panic(errInCallback)
}
func (brokenAllocator) Release(unsafe.Pointer, uint64, uint64, Space, unsafe.Pointer) {}

func TestPanicsInOtherCallbacksAreReportedAndDoNoHarm(t *testing.T) {
	shows(t, "CALL-02")
	var panics int32
	onPanic := func(panicked *PanicError) {
		if panicked.Value == errInCallback {
			atomic.AddInt32(&panics, 1)
		}
		panic("in the report too")
	}
	means := newRuntime(t, &RuntimeOptions{
		Log:         func(LogLevel, string) { panic(errInCallback) },
		ParallelFor: func(n int, task func(int)) { task(0); panic(errInCallback) },
		LogLevel:    LogDebug, NThreads: 3, OnPanic: onPanic,
	})
	defer means.Close()
	g := openGolden(t, qwen3, means)
	if !same(g.forward(t, &ForwardArgs{}), openGolden(t, qwen3, nil).forward(t, &ForwardArgs{})) {
		t.Fatal("other bits")
	}
	if panics < 2 {
		t.Fatal(panics, "panics")
	}
	_, err := NewRuntime(&RuntimeOptions{Allocator: brokenAllocator{}, OnPanic: onPanic})
	if err == nil {
		broken := newRuntime(t, &RuntimeOptions{Allocator: brokenAllocator{}, OnPanic: onPanic})
		defer broken.Close()
		_, err = OpenCheckpoint(g.path, &CheckpointOptions{Runtime: broken})
	}
	mustBe(t, err, ErrOutOfMemory)
}

func TestTheAllocatorServesHandlesAndGetsAllBack(t *testing.T) {
	shows(t, "CALL-03")
	allocator := newCountingAllocator()
	means := newRuntime(t, &RuntimeOptions{Allocator: allocator, NThreads: 2})
	g := readGolden(t, qwen3).open(t, means)
	report, err := g.loaded.Memory()
	must(t, err)
	if _, total, _ := allocator.state(); total < report.HostBytes+report.BookkeepingBytes || report.HostBytes == 0 {
		t.Fatal(total, report)
	}
	g.forward(t, &ForwardArgs{})
	means.Close()
	g.close()
	if living, _, problems := allocator.state(); living != 0 || problems != nil {
		t.Fatal(living, problems)
	}
}

func TestLogLines(t *testing.T) {
	shows(t, "CALL-04")
	type line struct {
		level LogLevel
		text  string
	}
	open := func(level LogLevel) []line {
		var mutex sync.Mutex
		var lines []line
		log := func(level LogLevel, text string) {
			mutex.Lock()
			defer mutex.Unlock()
			lines = append(lines, line{level, text})
		}
		means := newRuntime(t, &RuntimeOptions{Log: log, LogLevel: level})
		checkpoint, err := OpenCheckpoint(readGolden(t, qwen3).path, &CheckpointOptions{Runtime: means})
		must(t, err)
		checkpoint.Close()
		means.Close()
		return lines
	}
	found := false
	for _, one := range open(LogInfo) {
		found = found || (one.level == LogInfo && strings.Contains(one.text, "qwen3_moe_bf16"))
		if one.level < LogError || one.level > LogInfo || strings.Contains(one.text, "\n") {
			t.Fatal(one)
		}
	}
	if lines := open(LogWarning); !found || lines != nil {
		t.Fatal(found, lines)
	}
}

func TestParallelForOfTheCaller(t *testing.T) {
	data := shows(t, "CALL-05")
	var calls, most int32
	parallelFor := func(n int, task func(int)) {
		atomic.AddInt32(&calls, 1)
		if int32(n) > atomic.LoadInt32(&most) {
			atomic.StoreInt32(&most, int32(n))
		}
		var all sync.WaitGroup
		for i := 0; i < n; i++ {
			all.Add(1)
			go func(i int) {
				defer all.Done()
				task(i)
			}(i)
		}
		all.Wait()
	}
	means := newRuntime(t, &RuntimeOptions{ParallelFor: parallelFor, NThreads: 3})
	defer means.Close()
	g := openGolden(t, data["fixture"].(string), means)
	found := g.forward(t, &ForwardArgs{})
	if calls == 0 || most > 3 || !same(found, openGolden(t, data["fixture"].(string), nil).forward(t, &ForwardArgs{})) {
		t.Fatal(calls, most)
	}
}

func TestLoadingInTheBackgroundIsAGoroutine(t *testing.T) {
	shows(t, "CALL-06")
	t.Skip("a goroutine that calls LoadCheckpoint loads in the background; its Progress cancels")
}
