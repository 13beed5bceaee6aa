package moe

import "sync"

// A handleNumber stands for a value of Go in the hands of C, which must not have its address. It is valid until it is removed.
type handleNumber uintptr

var numbered struct {
	sync.RWMutex
	last   handleNumber
	values map[handleNumber]any
}

func newHandleNumber(value any) handleNumber {
	numbered.Lock()
	defer numbered.Unlock()
	if numbered.values == nil {
		numbered.values = map[handleNumber]any{}
	}
	numbered.last++
	numbered.values[numbered.last] = value
	return numbered.last
}

func (n handleNumber) value() any {
	numbered.RLock()
	defer numbered.RUnlock()
	return numbered.values[n]
}

func (n handleNumber) remove() {
	numbered.Lock()
	defer numbered.Unlock()
	delete(numbered.values, n)
}
