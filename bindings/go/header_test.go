package moe

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var (
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	declaration = regexp.MustCompile(`MOE_API\s+[^;()]*?\s*MOE_CALL\s+(\w+)\s*\(`)
	enumBody    = regexp.MustCompile(`(?s)(?:typedef enum \w+ MOE_ENUM_BASE|\nenum) \{(.*?)\}`)
	enumValue   = regexp.MustCompile(`MOE_(\w+)\s*=\s*(-?\d+)`)
	goValue     = regexp.MustCompile(`(?m)^\t(\w+)\s+\w+\s+= (-?\d+)$`)
	tableRow    = regexp.MustCompile("(?m)^\\| `(moe_\\w+)` \\| (.+) \\|$")
)

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func header(t *testing.T) string {
	return comment.ReplaceAllString(readText(t, filepath.Join(root, "include/moe/moe.h")), " ")
}

// sources is the package without its tests and without the functions that generate.py declares.
func sources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	must(t, err)
	all := ""
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "calls_") {
			all += readText(t, file)
		}
	}
	return all
}

func TestEveryFunctionIsWrappedOrListedWithAReason(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(readText(t, "README.md"), -1) {
		listed[row[1]] = strings.TrimSpace(row[2]) != ""
	}
	functions := declaration.FindAllStringSubmatch(header(t), -1)
	if len(functions) < 50 {
		t.Fatal(len(functions))
	}
	code, shims, calls := sources(t), readText(t, "dl.c"), readText(t, "calls_purego.go")
	for _, function := range functions {
		name := function[1]
		isUsed := strings.Contains(code, name+"(")
		if isUsed == listed[name] {
			t.Errorf("%s: used %t, in the table of README.md %t", name, isUsed, listed[name])
		}
		if !strings.Contains(shims, name+"(") {
			t.Errorf("%s is not in dl.c", name)
		}
		if !strings.Contains(calls, "func "+name+"(") {
			t.Errorf("%s is not in calls_purego.go", name)
		}
		delete(listed, name)
	}
	if len(listed) != 0 {
		t.Errorf("the table has what moe.h has not: %v", listed)
	}
}

// plain is a name without case and underscores: MOE_TYPE_F8_E4M3 and TypeF8E4M3 are one.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func TestEveryEnumValueIsThatOfTheHeader(t *testing.T) {
	ours := map[string]string{"ok": "0"}
	for _, one := range goValue.FindAllStringSubmatch(sources(t), -1) {
		ours[plain(one[1])] = one[2]
	}
	count := 0
	for _, body := range enumBody.FindAllStringSubmatch(header(t), -1) {
		for _, one := range enumValue.FindAllStringSubmatch(body[1], -1) {
			name := plain(strings.Replace(one[1], "ERROR_", "ERR_", 1))
			if strings.HasSuffix(name, "forceint32") {
				continue
			}
			if ours[name] != one[2] {
				t.Errorf("MOE_%s is %s, here %q", one[1], one[2], ours[name])
			}
			count++
			delete(ours, name)
		}
	}
	if count < 130 || len(ours) != 0 {
		t.Errorf("%d values; not in moe.h: %v", count, ours)
	}
}

func TestStructsOfWordsHaveTheFieldsOfTheHeader(t *testing.T) {
	for name, one := range map[string]any{"moe_layer_desc": LayerDesc{}, "moe_format": Format{}} {
		body := regexp.MustCompile(`(?s)typedef struct ` + name + ` \{(.*?)\n\} ` + name + `;`).FindStringSubmatch(header(t))[1]
		kind, index := reflect.TypeOf(one), -1
		for _, line := range strings.Split(body, ";") {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			if index < 0 {
				if words[1] != "struct_size" {
					t.Fatal(name, words)
				}
			} else if index >= kind.NumField() || plain(kind.Field(index).Name) != plain(words[1]) {
				t.Fatalf("%s.%s is not field %d here", name, words[1], index)
			} else if isFloat := words[0] == "float"; isFloat != (kind.Field(index).Type.Kind() == reflect.Float32) {
				t.Fatalf("%s.%s is %s", name, words[1], words[0])
			}
			index++
		}
		if index != kind.NumField() || uintptr(4*(index+1)) != wordStructs[name] {
			t.Fatal(name, index, kind.NumField(), wordStructs[name])
		}
	}
}

func TestWordsComeBackAsTheyWere(t *testing.T) {
	g := openGolden(t, "tests/oracle/fixtures/deepseek_v3_bf16", nil)
	layer, err := g.checkpoint.Layer(g.layer)
	must(t, err)
	var words [256]uint32
	putWords(&layer, words[:])
	var again LayerDesc
	getWords(words[:], &again)
	if again != layer || !layer.HasRouter || layer.RoutedScale == 0 {
		t.Fatal(layer, again)
	}
}

// TestTheExampleAndTheReadme run the example, and the Go of the README, on a checkpoint that the command moe makes.
func TestTheExampleAndTheReadme(t *testing.T) {
	command := os.Getenv("MOE_COMMAND")
	if command == "" {
		command = filepath.Join(root, "build/cpu/bin/moe")
	}
	if !exists(command) {
		t.Skip("the command moe is not built")
	}
	folder := filepath.Join(t.TempDir(), "qwen3")
	output, err := exec.Command(command, "make-model", "qwen3-30b-a3b", folder, "--reduced").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	said := runGo(t, "./example/layer", "-tokens", "3", folder)
	if !strings.Contains(said, "qwen3_moe, layer 0") || !strings.Contains(said, "token 2: experts") {
		t.Fatal(said)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	programs := block.FindAllStringSubmatch(readText(t, "README.md"), -1)
	if len(programs) == 0 {
		t.Fatal("README.md has no Go")
	}
	for _, program := range programs {
		lines := strings.ReplaceAll(program[1], `"/tmp/qwen3"`, "os.Args[1]")
		if lines == program[1] {
			t.Fatal("README.md opens nothing")
		}
		place := filepath.Join("example", "readme_"+filepath.Base(t.TempDir()))
		must(t, os.Mkdir(place, 0o755))
		defer os.RemoveAll(place)
		text := "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\n\t\"libmoe/moe\"\n)\n\nfunc main() {\n" + lines + "}\n"
		must(t, os.WriteFile(filepath.Join(place, "main.go"), []byte(text), 0o644))
		if said := runGo(t, "./"+place, folder); !strings.Contains(said, "<nil>") {
			t.Fatal(said)
		}
		absent := filepath.Join(folder, "absent")
		if said, err := tryGo("./"+place, absent); err == nil || !strings.Contains(said, "MOE_ERROR_IO") {
			t.Fatal(said)
		}
	}
}

func runGo(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := tryGo(arguments...)
	if err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	return output
}

func tryGo(arguments ...string) (string, error) {
	command := []string{"run", "-p", "1"}
	if isDlopen {
		command = append(command, "-tags", "moe_dlopen")
	}
	output, err := exec.Command("go", append(command, arguments...)...).CombinedOutput()
	return string(output), err
}

func TestWhatIsGeneratedIsThatOfTheHeader(t *testing.T) {
	output, err := exec.Command("python3", "generate.py", "--check").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v", output, err)
	}
}
