package moe

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Allocator serves every byte that handles keep. Both may be called from any thread. Memory is C's or the device's: never a
// slice of Go.
type Allocator interface {
	// Allocate gives memory of that space, or nil; alignment is a power of two up to 4096.
	Allocate(bytes, alignment uint64, space Space, stream unsafe.Pointer) unsafe.Pointer
	// Release takes it back, with the same bytes, alignment and space.
	Release(memory unsafe.Pointer, bytes, alignment uint64, space Space, stream unsafe.Pointer)
}

// hooks are the callbacks of a runtime. They live until the last handle that came from it is gone.
type hooks struct {
	log         func(LogLevel, string)
	allocator   Allocator
	parallelFor func(nTasks int, task func(index int))
	onPanic     func(*PanicError)
	handle      handleNumber
	users       int32
}

func (h *hooks) keep() func() {
	if h == nil {
		return func() {}
	}
	atomic.AddInt32(&h.users, 1)
	return func() {
		if atomic.AddInt32(&h.users, -1) == 0 {
			h.handle.remove()
		}
	}
}

// guard keeps a panic on this side of the C frames.
func (h *hooks) guard(run func()) {
	defer func() {
		if value := recover(); value != nil {
			h.report(&PanicError{value, debug.Stack()})
		}
	}()
	run()
}

func (h *hooks) report(panicked *PanicError) {
	defer func() { _ = recover() }()
	if h.onPanic != nil {
		h.onPanic(panicked)
		return
	}
	fmt.Fprintln(os.Stderr, panicked)
}

func hooksOf(handle uintptr) *hooks { return handleNumber(handle).value().(*hooks) }

// callbackAddresses are those of the C functions that call logCallback and the others here; user_data is a handleNumber.
type callbackAddresses struct{ log, parallelFor, allocate, release, progress uintptr }

// putNumber puts a number where C has a void *.
func putNumber(userData *unsafe.Pointer, handle uintptr) {
	*(*uintptr)(unsafe.Pointer(userData)) = handle
}

func logCallback(level int32, message *byte, handle uintptr) {
	hooks := hooksOf(handle)
	hooks.guard(func() { hooks.log(LogLevel(level), goString(message)) })
}

func allocateCallback(bytes, alignment uint64, space int32, stream unsafe.Pointer, handle uintptr) unsafe.Pointer {
	var memory unsafe.Pointer
	hooks := hooksOf(handle)
	hooks.guard(func() { memory = hooks.allocator.Allocate(uint64(bytes), uint64(alignment), Space(space), stream) })
	return memory
}

func releaseCallback(memory unsafe.Pointer, bytes, alignment uint64, space int32, stream unsafe.Pointer,
	handle uintptr) {
	hooks := hooksOf(handle)
	hooks.guard(func() { hooks.allocator.Release(memory, uint64(bytes), uint64(alignment), Space(space), stream) })
}

// parallelForCallback runs every task once, also those that the caller's function leaves or panics over, and waits for all.
func parallelForCallback(nTasks int32, task uintptr, taskData unsafe.Pointer, handle uintptr) {
	hooks := hooksOf(handle)
	started := make([]int32, int(nTasks))
	var unfinished sync.WaitGroup
	unfinished.Add(len(started))
	run := func(index int) {
		if atomic.CompareAndSwapInt32(&started[index], 0, 1) {
			defer unfinished.Done()
			runTask(task, int32(index), taskData)
		}
	}
	hooks.guard(func() { hooks.parallelFor(len(started), run) })
	for index := range started {
		run(index)
	}
	unfinished.Wait()
}

// Progress is called on the thread of a load with bytes done of a total; true cancels the load (ErrCancelled).
type Progress func(done, total uint64) (cancel bool)

// progressHook is a Progress for one call. A panic in it cancels, and is the error of the call.
type progressHook struct {
	progress Progress
	panicked *PanicError
}

func progressCallback(done, total uint64, handle uintptr) (answer int32) {
	hook := handleNumber(handle).value().(*progressHook)
	defer func() {
		if value := recover(); value != nil {
			hook.panicked = &PanicError{value, debug.Stack()}
			answer = 1
		}
	}()
	if hook.progress(uint64(done), uint64(total)) {
		return 1
	}
	return 0
}

// withProgress calls set with the number of a hook, runs, and gives a panic in the hook as the error.
func withProgress(progress Progress, set func(hook uintptr), run func() error) error {
	if progress == nil {
		return run()
	}
	hook := &progressHook{progress: progress}
	handle := newHandleNumber(hook)
	defer handle.remove()
	set(uintptr(handle))
	err := run()
	if err != nil && hook.panicked != nil {
		return hook.panicked
	}
	return err
}
