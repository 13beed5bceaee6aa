package moe

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Stream is a stream of a device; on the CPU it is the null pointer.
type Stream struct {
	Pointer unsafe.Pointer // what the arguments of calls take
	kind    DeviceKind
	index   int32
}

// NewStream makes one.
func NewStream(kind DeviceKind, index int32) (*Stream, error) {
	var made unsafe.Pointer
	err := call("moe_stream_create", func() moe_status {
		return moe_stream_create(moe_device_kind(kind), int32(index), &made)
	})
	if err != nil {
		return nil, err
	}
	return &Stream{made, kind, index}, nil
}

// Synchronize waits for all work on it.
func (s *Stream) Synchronize() error {
	return call("moe_stream_synchronize", func() moe_status {
		return moe_stream_synchronize(moe_device_kind(s.kind), int32(s.index), s.Pointer)
	})
}

// Close destroys it; work on it runs to its end. A second time does nothing.
func (s *Stream) Close() error {
	pointer := s.Pointer
	s.Pointer = nil
	return call("moe_stream_destroy", func() moe_status {
		return moe_stream_destroy(moe_device_kind(s.kind), int32(s.index), pointer)
	})
}

// DeviceMemory is memory of a device; on the CPU, of the host. Its Pointer goes into At. Nothing but Close frees it.
type DeviceMemory struct {
	Pointer unsafe.Pointer
	Bytes   uint64
	kind    DeviceKind
	index   int32
	space   Space
	runtime *Runtime
}

// NewDeviceMemory takes it from the runtime's allocator; nil is the default.
func NewDeviceMemory(r *Runtime, kind DeviceKind, index int32, space Space, bytes uint64) (*DeviceMemory, error) {
	made := &DeviceMemory{Bytes: bytes, kind: kind, index: index, space: space, runtime: r}
	err := made.with(func(means *moe_runtime) error {
		var pointer unsafe.Pointer
		err := call("moe_memory_allocate", func() moe_status {
			return moe_memory_allocate(means, moe_device_kind(kind), int32(index), moe_space(space),
				uint64(bytes), &pointer)
		})
		made.Pointer = pointer
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// Close frees it; work that uses it must have ended, and the runtime must be open. A second time does nothing.
func (m *DeviceMemory) Close() error {
	err := m.with(func(means *moe_runtime) error {
		return call("moe_memory_free", func() moe_status {
			return moe_memory_free(means, moe_device_kind(m.kind), int32(m.index), moe_space(m.space),
				uint64(m.Bytes), m.Pointer)
		})
	})
	if err == nil {
		m.Pointer = nil
	}
	return err
}

// Upload copies bytes to its beginning, behind the work on the stream, and waits.
func (m *DeviceMemory) Upload(from []byte, stream *Stream) error {
	return m.copied("from", from, stream, func(host unsafe.Pointer) moe_status {
		return moe_memory_copy(moe_device_kind(m.kind), int32(m.index), m.Pointer, host, uint64(len(from)),
			stream.Pointer)
	})
}

// Download copies its beginning out, behind the work on the stream, and waits.
func (m *DeviceMemory) Download(to []byte, stream *Stream) error {
	return m.copied("to", to, stream, func(host unsafe.Pointer) moe_status {
		return moe_memory_copy(moe_device_kind(m.kind), int32(m.index), host, m.Pointer, uint64(len(to)),
			stream.Pointer)
	})
}

// Zero sets all of it to zero, behind the work on the stream, and waits.
func (m *DeviceMemory) Zero(stream *Stream) error {
	err := call("moe_memory_zero", func() moe_status {
		return moe_memory_zero(moe_device_kind(m.kind), int32(m.index), m.Pointer, uint64(m.Bytes), stream.Pointer)
	})
	if err != nil {
		return err
	}
	return stream.Synchronize()
}

func (m *DeviceMemory) with(body func(*moe_runtime) error) error {
	return using([]*Handle{m.runtime.base()}, func(p []unsafe.Pointer) error { return body((*moe_runtime)(p[0])) })
}

// copied runs a copy from or to a slice, which stays where it is until the stream has been waited for.
func (m *DeviceMemory) copied(field string, host []byte, stream *Stream, run func(unsafe.Pointer) moe_status) error {
	if uint64(len(host)) > m.Bytes {
		return &ArgumentError{field, fmt.Sprintf("has %d bytes, the memory %d", len(host), m.Bytes)}
	}
	if len(host) == 0 {
		return nil
	}
	defer runtime.KeepAlive(host)
	if err := call("moe_memory_copy", func() moe_status { return run(unsafe.Pointer(&host[0])) }); err != nil {
		return err
	}
	return stream.Synchronize()
}
