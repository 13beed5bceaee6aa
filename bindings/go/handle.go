package moe

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// Handle is the part that Runtime, Checkpoint, Plan, Weights and Workspace share.
type Handle struct {
	kind    string
	mutex   sync.Mutex
	pointer unsafe.Pointer
	users   int
	closed  bool
	destroy func(unsafe.Pointer)
	after   []func() // once the library has let go
}

// newHandle makes one that is closed by the garbage collector if by nobody else.
func newHandle(kind string, pointer unsafe.Pointer, destroy func(unsafe.Pointer), after ...func()) *Handle {
	made := &Handle{kind: kind, pointer: pointer, destroy: destroy, after: after}
	runtime.SetFinalizer(made, (*Handle).Close)
	return made
}

// Close ends the handle; calls that are inside finish first, and the last of them destroys it. Closing twice is harmless.
// The error is always nil: Close makes handles io.Closers.
func (h *Handle) Close() error {
	h.mutex.Lock()
	now := !h.closed && h.users == 0
	h.closed = true
	h.mutex.Unlock()
	if now {
		h.end()
	}
	return nil
}

// Closed says whether Close was called.
func (h *Handle) Closed() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.closed
}

func (h *Handle) end() {
	runtime.SetFinalizer(h, nil)
	if h.destroy != nil {
		h.destroy(h.pointer)
	}
	h.pointer = nil
	for _, one := range h.after {
		one()
	}
	h.after = nil
}

func (h *Handle) enter() (unsafe.Pointer, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.closed {
		return nil, fmt.Errorf("%s: %w", h.kind, ErrClosed)
	}
	h.users++
	return h.pointer, nil
}

func (h *Handle) leave() {
	h.mutex.Lock()
	h.users--
	now := h.closed && h.users == 0
	h.mutex.Unlock()
	if now {
		h.end()
	}
}

// using gives the pointers of handles, nil for a nil one, and holds them open while body runs.
func using(handles []*Handle, body func(pointers []unsafe.Pointer) error) error {
	pointers := make([]unsafe.Pointer, len(handles))
	for i, one := range handles {
		if one == nil {
			continue
		}
		pointer, err := one.enter()
		if err != nil {
			return err
		}
		defer one.leave()
		pointers[i] = pointer
	}
	return body(pointers)
}
