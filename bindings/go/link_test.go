//go:build !moe_dlopen && cgo

package moe

import (
	"path/filepath"
	"strings"
	"testing"
)

const isDlopen = false

// A program that is linked is refused by the loader of the system, which names what is missing.
func TestTheLoaderNamesWhatIsMissing(t *testing.T) {
	data := shows(t, "VER-03")
	fake := filepath.Dir(fakeLibrary(t, 1))
	if output := gateProgram(t, "LD_LIBRARY_PATH="+fake); !strings.Contains(output, "undefined symbol: "+data["names"].(string)) {
		t.Fatal(output)
	}
	if output := gateProgram(t, "LD_LIBRARY_PATH="); !strings.Contains(output, "libmoe.so.0.1") {
		t.Fatal(output)
	}
	if err := openLibrary("/some/file"); err == nil || !strings.Contains(err.Error(), "moe_dlopen") {
		t.Fatal(err)
	}
}
