package moe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The conformance cases: cases.toml is read here, a test names its cases by shows(t, "ERR-01"), and MOE_RESULTS is the file that
// gets what came out (bindings/conformance/README.md).

const root = "../.."

var conformance = struct {
	sync.Mutex
	cases    map[string]map[string]any
	order    []string
	outcomes map[string][]outcome
}{outcomes: map[string][]outcome{}}

type outcome struct {
	failed, skipped bool
	reason          string
}

func TestMain(m *testing.M) {
	if err := readCases(filepath.Join(root, "bindings/conformance/cases.toml")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	status := m.Run()
	if path := os.Getenv("MOE_RESULTS"); path != "" {
		if err := writeResults(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 2
		}
	}
	os.Exit(status)
}

// shows says which cases a test shows, and gives the data of the first.
func shows(t *testing.T, names ...string) map[string]any {
	t.Helper()
	for _, name := range names {
		if conformance.cases[name] == nil {
			t.Fatalf("%s is no case", name)
		}
	}
	t.Cleanup(func() {
		conformance.Lock()
		defer conformance.Unlock()
		for _, name := range names {
			one := outcome{t.Failed(), t.Skipped(), t.Name()}
			conformance.outcomes[name] = append(conformance.outcomes[name], one)
		}
	})
	return conformance.cases[names[0]]
}

func writeResults(path string) error {
	var out bytes.Buffer
	for _, name := range conformance.order {
		if line := resultOf(conformance.outcomes[name]); line != nil {
			line["case"] = name
			text, _ := json.Marshal(line)
			fmt.Fprintf(&out, "%s\n", text)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func resultOf(outcomes []outcome) map[string]any {
	if outcomes == nil {
		return nil
	}
	var failed, skipped []string
	for _, one := range outcomes {
		if one.failed {
			failed = append(failed, one.reason)
		} else if one.skipped {
			skipped = append(skipped, one.reason+" was skipped")
		}
	}
	if failed != nil {
		return map[string]any{"passed": false, "reason": strings.Join(failed, ", ")}
	}
	if skipped != nil {
		return map[string]any{"passed": nil, "reason": strings.Join(skipped, "; ")}
	}
	return map[string]any{"passed": true}
}

// readCases reads the part of TOML that cases.toml uses: [[case]], and key = value on a line of its own.
func readCases(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	conformance.cases = map[string]map[string]any{}
	current := map[string]any{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "[[case]]" {
			current = map[string]any{}
		}
		key, rest, isPair := strings.Cut(line, " = ")
		if !isPair || strings.HasPrefix(line, "#") {
			continue
		}
		reader := &tomlReader{text: rest}
		current[key] = reader.value()
		if reader.bad {
			return fmt.Errorf("%s: cannot read %q", path, line)
		}
		if id, isText := current[key].(string); isText && key == "id" {
			conformance.cases[id] = current
			conformance.order = append(conformance.order, id)
		}
	}
	return lines.Err()
}

type tomlReader struct {
	text string
	bad  bool
}

func (r *tomlReader) skip(what string) bool {
	r.text = strings.TrimLeft(r.text, " ")
	if !strings.HasPrefix(r.text, what) {
		return false
	}
	r.text = strings.TrimLeft(r.text[len(what):], " ")
	return true
}

func (r *tomlReader) value() any {
	switch {
	case r.skip("["):
		list := []any{}
		for !r.bad && !r.skip("]") {
			list = append(list, r.value())
			r.skip(",")
		}
		return list
	case r.skip("{"):
		table := map[string]any{}
		for !r.bad && !r.skip("}") {
			key, rest, found := strings.Cut(r.text, "=")
			r.bad = r.bad || !found
			r.text = rest
			table[strings.TrimSpace(key)] = r.value()
			r.skip(",")
		}
		return table
	case r.skip(`"`):
		text, rest, found := strings.Cut(r.text, `"`)
		r.bad = r.bad || !found
		r.text = rest
		return text
	}
	return r.number()
}

func (r *tomlReader) number() any {
	end := strings.IndexAny(r.text, ",]}# ")
	if end < 0 {
		end = len(r.text)
	}
	token := r.text[:end]
	r.text = r.text[end:]
	if whole, err := strconv.ParseInt(token, 10, 64); err == nil {
		return whole
	}
	real, err := strconv.ParseFloat(token, 64)
	r.bad = r.bad || err != nil
	return real
}

func texts(value any) []string {
	var found []string
	for _, one := range value.([]any) {
		found = append(found, one.(string))
	}
	return found
}

func TestCasesAreRead(t *testing.T) {
	if len(conformance.order) < 30 {
		t.Fatalf("only %d cases", len(conformance.order))
	}
	size := conformance.cases["LIST-01"]["size"].(map[string]any)
	if size["format"] != "nvfp4" || size["data_bytes"] != int64(2048) {
		t.Fatal(size)
	}
	if conformance.cases["FWD-05"]["relative_l2"] != 1e-2 {
		t.Fatal(conformance.cases["FWD-05"])
	}
}
