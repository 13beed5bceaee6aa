package moe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// golden is a fixture of tests/oracle: a checkpoint with what the tool that wrote it computes.
type golden struct {
	path       string
	layer      int32
	x, y       []float32
	ids        []int32
	weights    []float32
	tokens     int
	hidden     int
	topK       int
	checkpoint *Checkpoint
	plan       *Plan
	loaded     *Weights
	workspace  *Workspace
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustBe checks an error's status and words.
func mustBe(t testing.TB, err error, status error, words ...string) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Fatalf("%v instead of %v", err, status)
	}
	for _, one := range words {
		if !strings.Contains(err.Error(), one) {
			t.Fatalf("%v has no %q", err, one)
		}
	}
}

func readGolden(t testing.TB, folder string) *golden {
	t.Helper()
	folder = filepath.Join(root, folder)
	made := &golden{path: folder}
	if gguf := filepath.Join(folder, "model.gguf"); exists(gguf) {
		made.path = gguf
	}
	text, err := os.ReadFile(filepath.Join(folder, "case.json"))
	must(t, err)
	var facts struct{ Layer int32 }
	must(t, json.Unmarshal(text, &facts))
	made.layer = facts.Layer
	made.x, made.tokens, made.hidden = readFloats(t, filepath.Join(folder, "x.npy"))
	made.y, _, _ = readFloats(t, filepath.Join(folder, "y.npy"))
	made.weights, _, made.topK = readFloats(t, filepath.Join(folder, "weights.npy"))
	bits, _, _ := readWords(t, filepath.Join(folder, "ids.npy"), "<i4")
	for _, one := range bits {
		made.ids = append(made.ids, int32(one))
	}
	return made
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readFloats(t testing.TB, path string) (values []float32, rows, columns int) {
	t.Helper()
	bits, rows, columns := readWords(t, path, "<f4")
	for _, one := range bits {
		values = append(values, math.Float32frombits(one))
	}
	return values, rows, columns
}

var npyHeader = regexp.MustCompile(`'descr': '(...)', 'fortran_order': False, 'shape': \((\d+), (\d+)\)`)

// readWords reads a .npy file of version 1 with 32-bit values.
func readWords(t testing.TB, path, wanted string) (words []uint32, rows, columns int) {
	t.Helper()
	file, err := os.ReadFile(path)
	must(t, err)
	end := 10 + int(binary.LittleEndian.Uint16(file[8:]))
	header := npyHeader.FindSubmatch(file[:end])
	if header == nil || string(header[1]) != wanted {
		t.Fatalf("%s: %q", path, file[:end])
	}
	rows, columns = number(header[2]), number(header[3])
	for data := file[end:]; len(data) >= 4; data = data[4:] {
		words = append(words, binary.LittleEndian.Uint32(data))
	}
	if len(words) != rows*columns {
		t.Fatalf("%s: %d values of %d x %d", path, len(words), rows, columns)
	}
	return words, rows, columns
}

func number(digits []byte) int {
	value := 0
	for _, one := range digits {
		value = 10*value + int(one-'0')
	}
	return value
}

func (g *golden) options(checkpoint *Checkpoint) *PlanOptions {
	return &PlanOptions{Checkpoint: checkpoint, CheckpointLayer: g.layer, Device: DeviceCPU, XType: TypeF32, MaxTokens: 64}
}

// open makes one of each handle, and closes them with the test.
func (g *golden) open(t testing.TB, runtime *Runtime) *golden {
	t.Helper()
	var err error
	g.checkpoint, err = OpenCheckpoint(g.path, &CheckpointOptions{Runtime: runtime})
	must(t, err)
	options := g.options(g.checkpoint)
	options.Runtime = runtime
	g.plan, err = NewPlan(options)
	must(t, err)
	g.loaded, err = LoadCheckpoint(g.plan, g.checkpoint, g.layer, nil)
	must(t, err)
	g.workspace, err = NewWorkspace(g.plan, &WorkspaceOptions{Runtime: runtime})
	must(t, err)
	return g
}

func (g *golden) close() {
	g.workspace.Close()
	g.loaded.Close()
	g.plan.Close()
	g.checkpoint.Close()
}

func openGolden(t testing.TB, folder string, runtime *Runtime) *golden {
	t.Helper()
	made := readGolden(t, folder).open(t, runtime)
	t.Cleanup(made.close)
	return made
}

const qwen3 = "tests/oracle/fixtures/qwen3_moe_bf16"

// forward gives out, filled with NaN before.
func (g *golden) forward(t testing.TB, args *ForwardArgs) []float32 {
	t.Helper()
	out := filled(len(g.y), float32(math.NaN()))
	args.Out = Of(out)
	if !args.X.given() {
		args.X = Of(g.x)
	}
	must(t, Forward(g.plan, g.loaded, g.workspace, args))
	return out
}

func filled[T any](n int, value T) []T {
	made := make([]T, n)
	for i := range made {
		made[i] = value
	}
	return made
}

func same[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// relativeL2 is the largest over rows; NaN counts as infinite, and zeros are one.
func relativeL2(t testing.TB, got, wanted []float32, rows int) float64 {
	t.Helper()
	if len(got) != len(wanted) || rows == 0 || len(got)%rows != 0 {
		t.Fatalf("%d values against %d in %d rows", len(got), len(wanted), rows)
	}
	worst, width := 0.0, len(got)/rows
	for row := 0; row < rows; row++ {
		difference, norm := 0.0, 0.0
		for i := row * width; i < (row+1)*width; i++ {
			difference += math.Pow(float64(got[i])-float64(wanted[i]), 2)
			norm += math.Pow(float64(wanted[i]), 2)
		}
		if norm == 0 {
			t.Fatalf("row %d that is wanted is zero", row)
		}
		error := math.Sqrt(difference / norm)
		if math.IsNaN(error) {
			error = math.Inf(1)
		}
		worst = math.Max(worst, error)
	}
	return worst
}

func (g *golden) near(t testing.TB, got []float32, limit float64) {
	t.Helper()
	if found := relativeL2(t, got, g.y, g.tokens); found > limit {
		t.Fatalf("relative L2 %g, more than %g", found, limit)
	}
}
