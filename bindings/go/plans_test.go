package moe

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	data := shows(t, "PLAN-01")
	file, err := os.ReadFile(filepath.Join(root, data["schema_file"].(string)))
	must(t, err)
	var schema map[string]any
	must(t, json.Unmarshal(file, &schema))
	g := openGolden(t, qwen3, nil)
	for _, unfused := range []bool{false, true} {
		options := g.options(g.checkpoint)
		options.Unfused = unfused
		plan, err := NewPlan(options)
		must(t, err)
		defer plan.Close()
		text, err := plan.Explain(ExplainJSON)
		must(t, err)
		var found map[string]any
		must(t, json.Unmarshal([]byte(text), &found))
		check := &schemaCheck{root: schema}
		check.value("", schema, found)
		if found["schema"] != data["schema"] || check.problems != nil || check.checked < 100 {
			t.Fatal(found["schema"], check.checked, check.problems)
		}
		found["schema"] = "another"
		delete(found, "key")
		check = &schemaCheck{root: schema}
		if check.value("", schema, found); len(check.problems) != 2 {
			t.Fatal("the check of the schema sees nothing: ", check.problems)
		}
		text, err = plan.Explain(ExplainText)
		must(t, err)
		if !strings.Contains(text, "cpu") {
			t.Fatal(text)
		}
	}
}

// schemaCheck is the part of JSON schema that docs/explain.schema.json uses; any other keyword is a problem.
type schemaCheck struct {
	root     map[string]any
	problems []string
	checked  int
}

func (s *schemaCheck) value(place string, schema map[string]any, found any) {
	s.checked++
	if s.problem(place, schema, found) {
		return
	}
	if object, ok := found.(map[string]any); ok {
		properties, _ := schema["properties"].(map[string]any)
		for name, one := range object {
			inner, known := properties[name].(map[string]any)
			if !known {
				inner, known = schema["additionalProperties"].(map[string]any)
			}
			if known {
				s.value(place+"."+name, inner, one)
			} else if schema["additionalProperties"] == false {
				s.problems = append(s.problems, place+"."+name+" is not in the schema")
			}
		}
	}
	if list, ok := found.([]any); ok {
		prefix, _ := schema["prefixItems"].([]any)
		for i, one := range list {
			if i < len(prefix) {
				s.value(fmt.Sprint(place, i), prefix[i].(map[string]any), one)
			} else if items, ok := schema["items"].(map[string]any); ok {
				s.value(fmt.Sprint(place, i), items, one)
			}
		}
	}
}

// problem looks at the keywords of one schema; true stops going deeper.
func (s *schemaCheck) problem(place string, schema map[string]any, found any) bool {
	before := len(s.problems)
	for keyword, wanted := range schema {
		ok := true
		switch keyword {
		case "$ref":
			inner := s.root["$defs"].(map[string]any)[strings.TrimPrefix(wanted.(string), "#/$defs/")]
			s.value(place, inner.(map[string]any), found)
		case "allOf":
			for _, one := range wanted.([]any) {
				s.value(place, one.(map[string]any), found)
			}
		case "contains":
			ok = s.contains(schema, found)
		case "if":
			branch, has := schema[map[bool]string{true: "then", false: "else"}[s.holds(wanted, found)]]
			ok = !has || s.holds(branch, found)
		case "not":
			ok = !s.holds(wanted, found)
		case "type":
			ok = isOfType(wanted, found)
		case "const":
			ok = found == wanted
		case "enum":
			ok = false
			for _, one := range wanted.([]any) {
				ok = ok || one == found
			}
		case "required":
			object, isObject := found.(map[string]any)
			for _, name := range wanted.([]any) {
				if _, has := object[name.(string)]; isObject && !has {
					ok = false
				}
			}
		case "minimum", "maximum", "exclusiveMinimum", "multipleOf":
			number, isNumber := found.(float64)
			limit := wanted.(float64)
			ok = !isNumber || (keyword == "minimum" && number >= limit) || (keyword == "maximum" && number <= limit) ||
				(keyword == "exclusiveMinimum" && number > limit) || (keyword == "multipleOf" && int64(number)%int64(limit) == 0)
		case "minLength":
			text, isText := found.(string)
			ok = !isText || len(text) >= int(wanted.(float64))
		case "pattern":
			text, isText := found.(string)
			ok = !isText || regexp.MustCompile(wanted.(string)).MatchString(text)
		case "minItems", "maxItems":
			list, isList := found.([]any)
			ok = !isList || (len(list) >= int(wanted.(float64))) == (keyword == "minItems") || len(list) == int(wanted.(float64))
		case "$schema", "$id", "$defs", "title", "description", "properties", "additionalProperties", "items", "prefixItems",
			"minContains", "maxContains", "then", "else":
		default:
			s.problems = append(s.problems, place+": this check does not know "+keyword)
		}
		if !ok {
			s.problems = append(s.problems, fmt.Sprintf("%s: %v breaks %s %v", place, found, keyword, wanted))
		}
	}
	return len(s.problems) > before && schema["type"] != "object"
}

func (s *schemaCheck) holds(schema, found any) bool {
	apart := &schemaCheck{root: s.root}
	apart.value("", schema.(map[string]any), found)
	return apart.problems == nil
}

func (s *schemaCheck) contains(schema map[string]any, found any) bool {
	count, least, most := 0.0, 1.0, math.Inf(1)
	list, _ := found.([]any)
	for _, one := range list {
		if s.holds(schema["contains"], one) {
			count++
		}
	}
	if limit, ok := schema["minContains"].(float64); ok {
		least = limit
	}
	if limit, ok := schema["maxContains"].(float64); ok {
		most = limit
	}
	return count >= least && count <= most
}

func isOfType(wanted, found any) bool {
	if several, ok := wanted.([]any); ok {
		for _, one := range several {
			if isOfType(one, found) {
				return true
			}
		}
		return false
	}
	switch value := found.(type) {
	case nil:
		return wanted == "null"
	case bool:
		return wanted == "boolean"
	case string:
		return wanted == "string"
	case float64:
		return wanted == "number" || (wanted == "integer" && value == float64(int64(value)))
	case []any:
		return wanted == "array"
	}
	return wanted == "object"
}

func TestDefaults(t *testing.T) {
	data := shows(t, "PLAN-02")
	g := openGolden(t, data["fixture"].(string), nil)
	kinds := map[string]Type{"f32": TypeF32, "bf16": TypeBF16, "f16": TypeF16}
	for name, one := range data["defaults"].(map[string]any) {
		options := &PlanOptions{Checkpoint: g.checkpoint, CheckpointLayer: g.layer, XType: kinds[name], MaxTokens: 1}
		automatic, err := NewPlan(options)
		must(t, err)
		defer automatic.Close()
		device, err := automatic.Device()
		must(t, err)
		if (device.Kind != DeviceCPU && device.Kind != DeviceCUDA) || device.Reason == "" {
			t.Fatal(device)
		}
		options.Device = DeviceCPU
		plan, err := NewPlan(options)
		must(t, err)
		defer plan.Close()
		text, err := plan.Explain(ExplainJSON)
		must(t, err)
		var found struct {
			Types  map[string]string
			Slice  struct{ Whole, Partial bool }
			Stages []struct{ Used bool }
		}
		must(t, json.Unmarshal([]byte(text), &found))
		for what, wanted := range one.(map[string]any) {
			if found.Types[what] != wanted {
				t.Fatal(name, what, found.Types)
			}
		}
		if found.Types["x"] != name || !found.Slice.Whole || found.Slice.Partial || len(found.Stages) != 5 {
			t.Fatal(found)
		}
		for _, stage := range found.Stages {
			if !stage.Used {
				t.Fatal(found)
			}
		}
	}
	options := g.options(g.checkpoint)
	options.MaxTokens = 0
	mustBe(t, Supports(options), ErrInvalidArgument, "max_tokens is 0")
	options = g.options(g.checkpoint)
	options.XType = TypeNone
	mustBe(t, Supports(options), ErrInvalidArgument, "x_type")
}

func TestKeysAndLayoutIDs(t *testing.T) {
	shows(t, "PLAN-03")
	g := openGolden(t, qwen3, nil)
	key, err := PlanKey(g.options(g.checkpoint))
	must(t, err)
	again, err := PlanKey(g.options(g.checkpoint))
	must(t, err)
	larger := g.options(g.checkpoint)
	larger.MaxTokens++
	other, err := PlanKey(larger)
	must(t, err)
	text, err := g.plan.Explain(ExplainJSON)
	must(t, err)
	if key != again || key == other || !strings.Contains(text, hex.EncodeToString(key[:])) {
		t.Fatal(key, again, other)
	}
	id, err := g.plan.LayoutID()
	must(t, err)
	large, err := NewPlan(larger)
	must(t, err)
	defer large.Close()
	largeID, err := large.LayoutID()
	must(t, err)
	weightsID, err := g.loaded.LayoutID()
	must(t, err)
	if id != largeID || id != weightsID || id == [16]byte{} {
		t.Fatal(id, largeID, weightsID)
	}
	options := g.options(g.checkpoint)
	options.Partial, options.Slice = true, &Slice{ExpertToLocal: []int32{5, 4, 3, 2, 1, 0, -1, -1, -1, -1, -1, -1}}
	partial, err := NewPlan(options)
	must(t, err)
	defer partial.Close()
	args := &ForwardArgs{X: Of(g.x), Out: Of(make([]float32, len(g.y)))}
	mustBe(t, Forward(partial, g.loaded, g.workspace, args), ErrLayoutMismatch)
	need, err := g.plan.WorkspaceSize(64)
	must(t, err)
	if need.HostBytes == 0 || need.DeviceBytes != 0 || need.Alignment == 0 {
		t.Fatal(need)
	}
}

func TestKernelsAndCandidates(t *testing.T) {
	data := shows(t, "PLAN-04")
	g := openGolden(t, qwen3, nil)
	candidates, err := g.plan.Candidates()
	must(t, err)
	for name, one := range data["stages"].(map[string]any) {
		stage := Stage(one.(int64))
		kernel, err := g.plan.Kernel(stage, 1)
		must(t, err)
		chosen := 0
		for _, candidate := range candidates {
			if candidate.Stage != stage || !candidate.Chosen {
				continue
			}
			chosen++
			if candidate.Kernel != kernel || !candidate.Applicable || candidate.ReasonCode != "chosen" || candidate.Reason == "" {
				t.Fatal(name, candidate)
			}
		}
		if chosen != 1 {
			t.Fatal(name, chosen)
		}
	}
	options := g.options(g.checkpoint)
	options.KernelFilter = "no_such_kernel"
	mustBe(t, Supports(options), ErrInvalidArgument, "no_such_kernel")
}

func TestUnknownEnumValuesAreKept(t *testing.T) {
	data := shows(t, "PLAN-05")
	number := data["unknown_value"].(int64)
	g := openGolden(t, qwen3, nil)
	options := g.options(g.checkpoint)
	options.Residency = Residency(number)
	if err := Supports(options); err == nil || !strings.Contains(err.Error(), fmt.Sprint(number)) {
		t.Fatal(err)
	}
	layer, err := g.checkpoint.Layer(g.layer)
	must(t, err)
	if layer.Activation != ActivationSilu {
		t.Fatal(layer)
	}
	layer.Activation = Activation(number)
	if err := layer.Validate(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(number)) || int64(layer.Activation) != number {
		t.Fatal(err)
	}
	if Type(number).String() != "unknown" || Role(number).String() != "unknown" || RoleSharedDown.String() != "shared_down" {
		t.Fatal(Type(number), Role(number))
	}
}

func TestFormats(t *testing.T) {
	data := shows(t, "LIST-01")
	names := strings.Join(FormatNames(), " ") + " "
	for _, name := range texts(data["formats"]) {
		if !strings.Contains(names, name+" ") {
			t.Fatal(name)
		}
	}
	for _, name := range FormatNames() {
		format, err := FormatByName(name)
		must(t, err)
		info, err := format.Info()
		must(t, err)
		if info.Name != name || !info.HasDecode || info.BitsPerWeight <= 0 || info.BitsPerWeight > 32 {
			t.Fatal(info)
		}
	}
	size := data["size"].(map[string]any)
	format, err := FormatByName(size["format"].(string))
	must(t, err)
	bytes, scales, err := format.Size(size["rows"].(int64), size["columns"].(int64))
	if err != nil || bytes != uint64(size["data_bytes"].(int64)) || scales != uint64(size["scale_bytes"].(int64)) {
		t.Fatal(bytes, scales, err)
	}
}

func TestFamiliesAndDevices(t *testing.T) {
	data := shows(t, "LIST-02")
	names := strings.Join(Families(), " ") + " "
	for _, name := range texts(data["families"]) {
		if !strings.Contains(names, name+" ") {
			t.Fatal(name)
		}
	}
	if count, err := DeviceCount(DeviceCPU); count != 1 || err != nil {
		t.Fatal(count, err)
	}
	info, err := GetDeviceInfo(DeviceCPU, 0)
	if err != nil || info.Kind != DeviceCPU || info.NCores < 1 || info.MemoryBytes == 0 || info.Name == "" {
		t.Fatal(info, err)
	}
}

func TestCheckpointsDescribeThemselves(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	info, err := g.checkpoint.Info()
	must(t, err)
	layers, err := g.checkpoint.Layers()
	must(t, err)
	if info.Family != "qwen3_moe" || info.IsGGUF || int(info.NLayers) != len(layers) || layers[0] != g.layer {
		t.Fatal(info, layers)
	}
	formats, err := g.checkpoint.Formats(g.layer)
	must(t, err)
	if _, has := formats[RoleLatentIn]; has || formats[RoleGate].Type != TypeBF16 {
		t.Fatal(formats)
	}
	_, err = g.checkpoint.Layer(999)
	mustBe(t, err, ErrNotFound)
	_, err = OpenCheckpoint(g.path, &CheckpointOptions{Family: "no such family"})
	mustBe(t, err, ErrUnsupported, "no such family")
}
