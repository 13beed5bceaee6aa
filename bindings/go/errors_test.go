package moe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var statuses = []Status{ErrInvalidArgument, ErrOutOfMemory, ErrUnsupported, ErrNotBuilt, ErrNoDevice, ErrLayoutMismatch,
	ErrWorkspaceTooSmall, ErrCancelled, ErrForked, ErrIO, ErrCorruptFile, ErrNotFound, ErrABI, ErrDevice, ErrBusy,
	ErrBufferTooSmall, ErrInternal}

func TestEachStatusIsAnErrorOfItsOwn(t *testing.T) {
	data := shows(t, "ERR-01")
	wanted := data["statuses"].(map[string]any)
	for name, number := range wanted {
		status := Status(number.(int64))
		err := fmt.Errorf("around: %w", &Error{status, "a sentence", "moe_call"})
		var failed *Error
		if !errors.Is(err, status) || !errors.As(err, &failed) || failed.Status != status || failed.Message != "a sentence" {
			t.Fatal(name, err)
		}
		if status.Name() != "MOE_ERROR_"+name {
			t.Fatal(status.Name(), name)
		}
		for _, other := range statuses {
			if errors.Is(err, other) != (other == status) {
				t.Fatal(name, "is", other)
			}
		}
	}
	if len(statuses) != len(wanted) {
		t.Fatal(len(statuses), "statuses")
	}
	mustBe(t, new(LayerDesc).Validate(), ErrInvalidArgument, "moe_layer_validate")
	_, err := FormatByName("no such format")
	mustBe(t, err, ErrNotFound)
	_, err = OpenCheckpoint(filepath.Join(t.TempDir(), "absent"), nil)
	mustBe(t, err, ErrIO)
}

func TestAnUnknownStatusKeepsItsNumber(t *testing.T) {
	data := shows(t, "ERR-02")
	number := Status(data["unknown_status"].(int64))
	err := error(&Error{number, "from the future", "moe_call"})
	var status Status
	if !errors.As(err, &status) || status != number || !errors.Is(err, number) {
		t.Fatal(status)
	}
	if number.Name() != data["unknown_name"] || !strings.Contains(err.Error(), "from the future") ||
		!strings.Contains(err.Error(), "-999") {
		t.Fatal(err)
	}
	for _, known := range statuses {
		if errors.Is(err, known) {
			t.Fatal(known)
		}
	}
}

func TestTheSentenceNamesFieldAndValue(t *testing.T) {
	data := shows(t, "ERR-03")
	bad := data["bad_layer"].(map[string]any)
	layer := &LayerDesc{Hidden: int32(bad["hidden"].(int64)), Intermediate: int32(bad["intermediate"].(int64)),
		NExperts: int32(bad["n_experts"].(int64)), TopK: int32(bad["top_k"].(int64)),
		Activation: Activation(bad["activation"].(int64)), IsGated: true}
	mustBe(t, layer.Validate(), ErrInvalidArgument, texts(data["message_has"])...)
	file := data["absent_file"].(string)
	_, err := OpenCheckpoint(file, nil)
	mustBe(t, err, ErrIO, file)
}

func TestGoroutinesKeepTheirOwnSentences(t *testing.T) {
	data := shows(t, "ERR-04")
	inParallel(t, int(data["threads"].(int64)), func(number int) error {
		name := fmt.Sprintf("format-of-thread-%d", number)
		for round := int64(0); round < data["rounds"].(int64); round++ {
			if _, err := FormatByName(name); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), name) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
}

// inParallel runs work in that many goroutines.
func inParallel(t *testing.T, count int, work func(number int) error) {
	t.Helper()
	found := make([]error, count)
	var all sync.WaitGroup
	for number := range found {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			found[number] = work(number)
		}(number)
	}
	all.Wait()
	for _, err := range found {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestVersionsCanBeRead(t *testing.T) {
	data := shows(t, "VER-01")
	if LibraryABIVersion() != ABIVersion || ABIVersion != data["abi_version"].(int64) {
		t.Fatal(LibraryABIVersion())
	}
	version := VersionString()
	var major, minor, patch uint32
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || Version() != major*1000000+minor*1000+patch {
		t.Fatal(version, Version())
	}
	if Version() != HeaderVersion || !strings.Contains(BuildInfo(), data["build_info_has"].(string)+version) {
		t.Fatal(BuildInfo())
	}
}

// fakeLibrary claims an ABI version and has nothing else. It is named like the library, for the loader to take it.
func fakeLibrary(t *testing.T, version int64) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler to make the fake library")
	}
	path := filepath.Join(t.TempDir(), "libmoe.so.0.1")
	source := filepath.Join(root, conformance.cases["VER-02"]["source"].(string))
	define := fmt.Sprintf("-DFAKE_ABI=%d", version)
	exports := filepath.Join(filepath.Dir(path), "exports.map") // with the version that a linked program asks for
	must(t, os.WriteFile(exports, []byte("LIBMOE_0.1 { global: moe_*; local: *; };\n"), 0o644))
	script := "-Wl,--version-script=" + exports
	output, err := exec.Command(compiler, "-shared", "-fPIC", define, source, script, "-o", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	return path
}

// gateProgram runs this test program again, where it only loads the library, and gives what it says.
func gateProgram(t *testing.T, environment ...string) string {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	command := exec.Command(program, "-test.run", "^TestGateProgram$", "-test.v")
	command.Env = append(os.Environ(), append(environment, "MOE_GATE_PROGRAM=1", "MOE_RESULTS=")...)
	output, _ := command.CombinedOutput()
	return string(output)
}

func TestGateProgram(t *testing.T) {
	if os.Getenv("MOE_GATE_PROGRAM") == "" {
		t.Skip("run by other tests")
	}
	_, err := FormatByName("f32")
	fmt.Printf("gate: %v, ABI error: %t, not found: %t\n", err, errors.Is(err, ErrABI), errors.Is(err, ErrNotFound))
}

func TestAnotherABIIsRefusedFirst(t *testing.T) {
	data := shows(t, "VER-02")
	for _, one := range data["versions"].([]any) {
		path := fakeLibrary(t, one.(int64))
		output := gateProgram(t, "MOE_LIBRARY="+path, "LD_LIBRARY_PATH="+filepath.Dir(path))
		wanted := fmt.Sprintf("found ABI version %d, wanted %d", one, ABIVersion)
		if !strings.Contains(output, wanted) || !strings.Contains(output, "ABI error: true") {
			t.Fatalf("no %q in %s", wanted, output)
		}
	}
	if output := gateProgram(t); !strings.Contains(output, "gate: <nil>") {
		t.Fatal(output)
	}
}
