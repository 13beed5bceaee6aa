//go:build moe_dlopen || !cgo

package moe

import (
	"strings"
	"testing"
)

const isDlopen = true

func TestALibraryWithoutFunctionsIsRefusedByName(t *testing.T) {
	data := shows(t, "VER-03")
	t.Setenv("MOE_LIBRARY", fakeLibrary(t, 1))
	mustBe(t, openLibrary(""), ErrNotFound, "lacks the symbol "+data["names"].(string))
}

func TestAMissingLibrarySaysWhatWasTried(t *testing.T) {
	shows(t, "VER-03")
	output := gateProgram(t, "MOE_LIBRARY=/no/such/libmoe.so", "LD_LIBRARY_PATH=")
	for _, one := range []string{"/no/such/libmoe.so", "libmoe.so.0.1", "not found: true"} {
		if !strings.Contains(output, one) {
			t.Fatalf("no %q in %s", one, output)
		}
	}
	t.Setenv("MOE_LIBRARY", "")
	path := fakeLibrary(t, 77)
	mustBe(t, openLibrary(path), ErrABI, "found ABI version 77")
}
