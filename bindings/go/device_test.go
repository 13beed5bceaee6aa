package moe

import (
	"bytes"
	"errors"
	"testing"
)

func TestMemoryOfADeviceGoesInAndOut(t *testing.T) {
	case_ := shows(t, "MEM-01")
	n := int(case_["elements"].(int64))
	stream, err := NewStream(DeviceCPU, 0)
	must(t, err)
	runtime, err := NewRuntime(&RuntimeOptions{NThreads: 1})
	must(t, err)
	defer runtime.Close()
	values := bytes.Repeat([]byte{1, 2, 3, 4}, n)
	for _, space := range []Space{SpaceHost, SpacePinned, SpaceDevice} {
		memory, err := NewDeviceMemory(runtime, DeviceCPU, 0, space, uint64(len(values)))
		must(t, err)
		got := make([]byte, len(values))
		must(t, memory.Upload(values, stream))
		must(t, memory.Download(got, stream))
		if !bytes.Equal(got, values) {
			t.Errorf("space %d: other bytes", space)
		}
		must(t, memory.Zero(stream))
		must(t, memory.Download(got, stream))
		if !bytes.Equal(got, make([]byte, len(values))) {
			t.Errorf("space %d: not zero", space)
		}
		var refused *ArgumentError
		if err := memory.Upload(append(values, 0), stream); !errors.As(err, &refused) || refused.Field != "from" {
			t.Errorf("too long: %v", err)
		}
		if err := memory.Download(make([]byte, len(values)+1), stream); !errors.As(err, &refused) || refused.Field != "to" {
			t.Errorf("too long: %v", err)
		}
		must(t, memory.Close())
		must(t, memory.Close())
	}
	must(t, stream.Synchronize())
	must(t, stream.Close())
	must(t, stream.Close())
	if _, err := NewDeviceMemory(nil, DeviceCPU, 7, SpaceDevice, 64); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("device 7: %v", err)
	}
	if _, err := NewStream(DeviceAuto, 0); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no kind: %v", err)
	}
}
