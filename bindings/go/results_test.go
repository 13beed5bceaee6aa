package moe

import (
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sort"
	"strings"
	"testing"
	"unsafe"
)

func TestGoldenOutputs(t *testing.T) {
	data := shows(t, "FWD-01")
	for _, name := range texts(data["fixtures"]) {
		t.Run(name, func(t *testing.T) {
			g := openGolden(t, "tests/oracle/fixtures/"+name, nil)
			shape, err := g.plan.Shape()
			must(t, err)
			ids, weights := filled(len(g.ids), int32(-7)), filled(len(g.weights), float32(math.NaN()))
			counts, wanted := filled(int(shape.NAllExperts), int64(-7)), make([]int64, shape.NAllExperts)
			for _, id := range g.ids {
				wanted[id]++
			}
			out := g.forward(t, &ForwardArgs{OutIDs: Of(ids), OutWeights: Of(weights), OutExpertCounts: Of(counts)})
			if !same(ids, g.ids) || !same(counts, wanted) {
				t.Fatal(ids, g.ids, counts)
			}
			if found := relativeL2(t, weights, g.weights, g.tokens); found > data["relative_l2"].(float64) {
				t.Fatal("weights", found)
			}
			g.near(t, out, data["relative_l2"].(float64))
		})
	}
}

func TestGivenRouting(t *testing.T) {
	data := shows(t, "FWD-02")
	g := openGolden(t, data["fixture"].(string), nil)
	limit := data["relative_l2"].(float64)
	wide := make([]int64, len(g.ids))
	for i, id := range g.ids {
		wide[i] = int64(id)
	}
	g.near(t, g.forward(t, &ForwardArgs{IDs: Of(wide), Weights: Of(g.weights)}), limit)
	shape, err := g.plan.Shape()
	must(t, err)
	logits := filled(g.tokens*int(shape.NAllExperts), float32(math.NaN()))
	computed := g.forward(t, &ForwardArgs{OutLogits: Of(logits)})
	ids := filled(len(g.ids), int32(-7))
	if !same(g.forward(t, &ForwardArgs{Logits: Of(logits), OutIDs: Of(ids)}), computed) || !same(ids, g.ids) {
		t.Fatal("logits that are given back route otherwise")
	}
	nobody := g.forward(t, &ForwardArgs{IDs: Of(filled(len(g.ids), int32(-1))), Weights: Of(g.weights)})
	if !same(nobody, make([]float32, len(nobody))) {
		t.Fatal("ids of -1 do not give zero")
	}
	must(t, Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of([]float32{}), Out: Of([]float32{})}))
}

func TestAccumulationAndFewerTokens(t *testing.T) {
	shows(t, "FWD-02")
	g := openGolden(t, qwen3, nil)
	out, twice := append([]float32(nil), g.y...), make([]float32, len(g.y))
	for i := range twice {
		twice[i] = 2 * g.y[i]
	}
	must(t, Forward(g.plan, g.loaded, g.workspace, &ForwardArgs{X: Of(g.x), Out: Of(out), Accumulate: true}))
	if found := relativeL2(t, out, twice, g.tokens); found > 1e-5 {
		t.Fatal(found)
	}
	out = filled(len(g.y), float32(7))
	args := &ForwardArgs{X: Of(g.x), Out: Of(out), NTokensDevice: Of([]int32{2})}
	must(t, Forward(g.plan, g.loaded, g.workspace, args))
	part := 2 * g.hidden
	if found := relativeL2(t, out[:part], g.y[:part], 2); found > 1e-5 || !same(out[part:], filled(len(out)-part, float32(7))) {
		t.Fatal("the true number of tokens was not kept to")
	}
}

func TestStageByStage(t *testing.T) {
	data := shows(t, "FWD-03")
	g := openGolden(t, data["fixture"].(string), nil)
	limit := data["relative_l2"].(float64)
	shape, err := g.plan.Shape()
	must(t, err)
	ids, weights := filled(len(g.ids), int32(-7)), filled(len(g.weights), float32(math.NaN()))
	route := &RouteArgs{X: Of(g.x), OutIDs: Of(ids), OutWeights: Of(weights)}
	must(t, Route(g.plan, g.loaded, g.workspace, route))
	again := filled(len(weights), float32(math.NaN()))
	must(t, Route(g.plan, g.loaded, g.workspace, &RouteArgs{X: Of(g.x), IDs: Of(ids), OutWeights: Of(again)}))
	if !same(ids, g.ids) || relativeL2(t, again, g.weights, g.tokens) > limit {
		t.Fatal(ids)
	}
	offsets, counts := make([]int64, shape.NLocalExperts+1), make([]int64, shape.NLocalExperts)
	rowIDs := filled(len(ids), int32(-7))
	place := &DispatchArgs{IDs: Of(ids), OutOffsets: Of(offsets), OutCounts: Of(counts), OutRowIDs: Of(rowIDs)}
	must(t, Dispatch(g.plan, g.workspace, place))
	sorted := append([]int32(nil), rowIDs...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	if offsets[shape.NLocalExperts] != int64(len(ids)) || sorted[0] != 0 || sorted[len(sorted)-1] != int32(len(ids)-1) {
		t.Fatal(offsets, rowIDs)
	}
	rows := filled(len(ids)*g.hidden, float32(math.NaN()))
	experts := &ExpertsArgs{X: Of(g.x), Out: Of(rows), OutLayout: OutRows, Offsets: Of(offsets), RowIDs: Of(rowIDs)}
	must(t, Experts(g.plan, g.loaded, g.workspace, experts))
	routed := filled(len(g.y), float32(math.NaN()))
	combine := &CombineArgs{Rows: Of(rows), RowIDs: Of(rowIDs), IDs: Of(ids), Weights: Of(weights), Out: Of(routed)}
	must(t, Combine(g.plan, g.workspace, combine))
	out := filled(len(g.y), float32(math.NaN()))
	finish := &FinishArgs{Routed: Of(routed), X: Of(g.x), IDs: Of(ids), Weights: Of(weights), Out: Of(out)}
	must(t, Finish(g.plan, g.loaded, g.workspace, finish))
	g.near(t, out, limit)
	fused := filled(len(g.y), float32(math.NaN()))
	experts = &ExpertsArgs{X: Of(g.x), Out: Of(fused), IDs: Of(ids), Weights: Of(weights)}
	must(t, Experts(g.plan, g.loaded, g.workspace, experts))
	if found := relativeL2(t, fused, routed, g.tokens); found > 1e-5 {
		t.Fatal(found)
	}
}

func TestLayoutsOfExperts(t *testing.T) {
	shows(t, "FWD-03")
	g := openGolden(t, qwen3, nil)
	shape, err := g.plan.Shape()
	must(t, err)
	offsets, counts := make([]int64, shape.NLocalExperts+1), make([]int64, shape.NLocalExperts)
	rowIDs, n := make([]int32, len(g.ids)), len(g.ids)
	place := &DispatchArgs{IDs: Of(g.ids), OutOffsets: Of(offsets), OutCounts: Of(counts), OutRowIDs: Of(rowIDs)}
	must(t, Dispatch(g.plan, g.workspace, place))
	gathered, tokens := filled(n*g.hidden, float32(math.NaN())), filled(n, int32(-7))
	rowWeights := filled(n, float32(math.NaN()))
	must(t, Gather(g.plan, g.workspace, &GatherArgs{X: Of(g.x), Offsets: Of(offsets), Counts: Of(counts), RowIDs: Of(rowIDs),
		Out: Of(gathered), Weights: Of(g.weights), OutRowTokens: Of(tokens), OutRowWeights: Of(rowWeights)}))
	for r, slot := range rowIDs {
		token := int(slot) / int(shape.TopK)
		row, x := gathered[r*g.hidden:(r+1)*g.hidden], g.x[token*g.hidden:(token+1)*g.hidden]
		if !same(row, x) || tokens[r] != int32(token) || rowWeights[r] != g.weights[slot] {
			t.Fatal(r, slot, tokens[r], rowWeights[r])
		}
	}
	run := func(args *ExpertsArgs, size int) []float32 {
		out := filled(size, float32(math.NaN()))
		args.Out = Of(out)
		must(t, Experts(g.plan, g.loaded, g.workspace, args))
		return out
	}
	near := func(got, wanted []float32, rows int) {
		t.Helper()
		if found := relativeL2(t, got, wanted, rows); found > 1e-5 {
			t.Fatal(found)
		}
	}
	byRow := &ExpertsArgs{X: Of(g.x), OutLayout: OutRows, Offsets: Of(offsets), RowIDs: Of(rowIDs)}
	rows := run(byRow, n*g.hidden)
	var sortedX []float32
	for _, slot := range rowIDs {
		token := int(slot) / g.topK
		sortedX = append(sortedX, g.x[token*g.hidden:(token+1)*g.hidden]...)
	}
	near(run(&ExpertsArgs{InLayout: InSorted, OutLayout: OutRows, X: Of(sortedX), Offsets: Of(offsets)}, len(rows)), rows, n)
	reduced := run(&ExpertsArgs{InLayout: InSorted, X: Of(sortedX), Offsets: Of(offsets), RowIDs: Of(rowIDs),
		NTokens: int64(g.tokens), Weights: Of(g.weights)}, len(g.y))
	g.near(t, reduced, 1e-5)

	capacity := 0
	for _, count := range counts {
		capacity = int(math.Max(float64(capacity), float64(count)))
	}
	batched := make([]float32, len(counts)*capacity*g.hidden)
	for expert := range counts {
		copy(batched[expert*capacity*g.hidden:], sortedX[int(offsets[expert])*g.hidden:int(offsets[expert+1])*g.hidden])
	}
	out := run(&ExpertsArgs{InLayout: InBatched, OutLayout: OutRows, X: Of(batched), Counts: Of(counts)}, len(batched))
	var used []float32
	for expert, count := range counts {
		used = append(used, out[expert*capacity*g.hidden:(expert*capacity+int(count))*g.hidden]...)
	}
	near(used, rows, n)
	half := run(&ExpertsArgs{X: Of(g.x), OutLayout: OutRows, Offsets: Of(offsets), RowIDs: Of(rowIDs),
		StopBeforeActivation: true}, n*int(shape.NFeatures))
	if math.IsNaN(float64(half[0])) || same(half, make([]float32, len(half))) {
		t.Fatal("nothing before the activation")
	}
	slots := run(&ExpertsArgs{X: Of(g.x), OutLayout: OutPerSlot, IDs: Of(g.ids)}, n*g.hidden)
	combined := filled(len(g.y), float32(math.NaN()))
	combine := &CombineArgs{Rows: Of(slots), IDs: Of(g.ids), Weights: Of(g.weights), Out: Of(combined)}
	must(t, Combine(g.plan, g.workspace, combine))
	g.near(t, combined, 1e-5)
}

func TestSlicesAddUp(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	total := make([]float32, len(g.y))
	for _, part := range [][2]int32{{0, 5}, {5, 7}} {
		options := g.options(g.checkpoint)
		options.Partial, options.Slice = true, &Slice{HasExpertRange: true, ExpertBegin: part[0], ExpertCount: part[1]}
		plan, err := NewPlan(options)
		must(t, err)
		defer plan.Close()
		weights, err := LoadCheckpoint(plan, g.checkpoint, g.layer, nil)
		must(t, err)
		defer weights.Close()
		report, err := weights.Memory()
		must(t, err)
		if report.NLocalExperts != uint32(part[1]) {
			t.Fatal(report)
		}
		args := &ForwardArgs{X: Of(g.x), Out: Of(total), Accumulate: true}
		must(t, Forward(plan, weights, g.workspace, args))
	}
	g.near(t, total, 1e-5)
}

// small is a layer made by hand.
type small struct {
	plan    *Plan
	arrays  map[Role][]float32
	x       []float32
	wanted  []float32
	experts int64
	h, i    int64
}

const smallTokens = 5

func smallLayer(t *testing.T, data map[string]any) *small {
	t.Helper()
	fields := data["layer"].(map[string]any)
	whole := func(name string) int32 { return int32(fields[name].(int64)) }
	layer := &LayerDesc{Hidden: whole("hidden"), Intermediate: whole("intermediate"), NExperts: whole("n_experts"),
		TopK: whole("top_k"), HasRouter: whole("has_router") != 0, Score: Score(whole("score")),
		Activation: Activation(whole("activation")), IsGated: whole("is_gated") != 0}
	must(t, layer.Validate())
	s := &small{experts: int64(layer.NExperts), h: int64(layer.Hidden), i: int64(layer.Intermediate)}
	random := rand.New(rand.NewSource(7))
	normal := func(n int64) []float32 {
		made := make([]float32, n)
		for i := range made {
			made[i] = float32(random.NormFloat64())
		}
		return made
	}
	matrix := s.experts * s.h * s.i
	s.arrays = map[Role][]float32{RoleRouter: normal(s.experts * s.h), RoleGate: normal(matrix), RoleUp: normal(matrix),
		RoleDown: normal(matrix)}
	s.x = normal(smallTokens * s.h)
	s.wanted = s.byHand(int(layer.TopK))
	f32, err := FormatByName("f32")
	must(t, err)
	formats := map[Role]Format{}
	for role := range s.arrays {
		formats[role] = f32
	}
	s.plan, err = NewPlan(&PlanOptions{Layer: layer, Formats: formats, XType: TypeF32, MaxTokens: smallTokens, Device: DeviceCPU})
	must(t, err)
	t.Cleanup(func() { s.plan.Close() })
	return s
}

func times(matrix []float32, x []float64) []float64 {
	out := make([]float64, len(matrix)/len(x))
	for row := range out {
		for i, value := range x {
			out[row] += float64(matrix[row*len(x)+i]) * value
		}
	}
	return out
}

// byHand has the sums of moe.h section 4 for softmax scores and SiLU, in float64.
func (s *small) byHand(topK int) []float32 {
	var all []float32
	for token := int64(0); token < smallTokens; token++ {
		row := make([]float64, s.h)
		for i := range row {
			row[i] = float64(s.x[token*s.h+int64(i)])
		}
		scores, sum := times(s.arrays[RoleRouter], row), 0.0
		order := make([]int64, len(scores))
		for i := range scores {
			scores[i], order[i] = math.Exp(scores[i]), int64(i)
			sum += scores[i]
		}
		sort.SliceStable(order, func(i, j int) bool { return scores[order[i]] > scores[order[j]] })
		out := make([]float64, s.h)
		for _, expert := range order[:topK] {
			begin, end := expert*s.h*s.i, (expert+1)*s.h*s.i
			g, u := times(s.arrays[RoleGate][begin:end], row), times(s.arrays[RoleUp][begin:end], row)
			for i := range g {
				g[i] *= u[i] / (1 + math.Exp(-g[i]))
			}
			for i, value := range times(s.arrays[RoleDown][begin:end], g) {
				out[i] += scores[expert] / sum * value
			}
		}
		for _, value := range out {
			all = append(all, float32(value))
		}
	}
	return all
}

func (s *small) tensors(t *testing.T) []*Tensor {
	t.Helper()
	var made []*Tensor
	for role, array := range s.arrays {
		rows, columns := s.i, s.h
		switch role {
		case RoleRouter:
			rows = s.experts
		case RoleDown:
			rows, columns = s.h, s.i
		}
		one, err := Dense(role, Of(array), rows, columns)
		must(t, err)
		made = append(made, one)
	}
	return made
}

func (s *small) error(t *testing.T, weights *Weights) float64 {
	t.Helper()
	workspace, err := NewWorkspace(s.plan, nil)
	must(t, err)
	defer workspace.Close()
	out := filled(len(s.x), float32(math.NaN()))
	must(t, Forward(s.plan, weights, workspace, &ForwardArgs{X: Of(s.x), Out: Of(out)}))
	return relativeL2(t, out, s.wanted, smallTokens)
}

func TestTensorsByHand(t *testing.T) {
	data := shows(t, "FWD-04")
	s := smallLayer(t, data)
	for name, ownership := range map[string]Ownership{"copy": OwnCopy, "borrow": OwnBorrow, "caller": OwnCaller} {
		t.Run(name, func(t *testing.T) {
			options := &LoadOptions{Ownership: ownership}
			if ownership == OwnCaller {
				size, err := WeightsSize(s.plan, s.tensors(t))
				must(t, err)
				bytes := make([]uint8, size+64)
				begin := -uintptr(unsafe.Pointer(&bytes[0])) & 63
				options.Memory = Of(bytes[begin : begin+uintptr(size)])
			}
			weights, err := LoadWeights(s.plan, s.tensors(t), options)
			must(t, err)
			defer weights.Close()
			report, err := weights.Memory()
			must(t, err)
			if report.RoleBytes[RoleGate] != uint64(4*len(s.arrays[RoleGate])) || (report.BorrowedBytes > 0) != (name == "borrow") {
				t.Fatal(report)
			}
			if found := s.error(t, weights); found > data["relative_l2"].(float64) {
				t.Fatal(found)
			}
		})
	}
}

func TestOneArrayPerExpertAndUpdate(t *testing.T) {
	data := shows(t, "FWD-04")
	s := smallLayer(t, data)
	size := int(s.h * s.i)
	expert := func(i int) []float32 { return s.arrays[RoleGate][i*size : (i+1)*size] }
	for _, ownership := range []Ownership{OwnCopy, OwnBorrow} {
		tensors := s.tensors(t)
		for _, one := range tensors {
			if one.Role == RoleGate {
				one.Data, one.NExperts = Array{}, 0
				one.DataPerExpert = []Array{Of(expert(0)), Of(expert(1)), Of(expert(2)), Of(expert(0))}
			}
		}
		weights, err := LoadWeights(s.plan, tensors, &LoadOptions{Ownership: ownership})
		must(t, err)
		defer weights.Close()
		if s.error(t, weights) < 1e-3 {
			t.Fatal("a wrong expert makes no difference")
		}
		right, err := Dense(RoleGate, Of(expert(3)), s.i, s.h)
		must(t, err)
		right.Expert = 3
		must(t, weights.Update(right, nil))
		if found := s.error(t, weights); found > data["relative_l2"].(float64) {
			t.Fatal(found)
		}
	}
}

// Slices that weights borrow stay where they are while garbage is collected, and are let go with weights that nobody closed.
func TestBorrowedSlicesAreKept(t *testing.T) {
	data := shows(t, "FWD-04")
	s := smallLayer(t, data)
	for round := 0; round < 3; round++ {
		copies := &small{plan: s.plan, arrays: map[Role][]float32{}, experts: s.experts, h: s.h, i: s.i}
		for role, array := range s.arrays {
			copies.arrays[role] = append([]float32(nil), array...)
		}
		weights, err := LoadWeights(s.plan, copies.tensors(t), &LoadOptions{Ownership: OwnBorrow})
		must(t, err)
		copies = nil
		for i := 0; i < 5; i++ {
			runtime.GC()
			_ = make([]float32, 1<<16)
		}
		if found := s.error(t, weights); found > data["relative_l2"].(float64) {
			t.Fatal(found)
		}
	}
	runtime.GC()
	runtime.GC()
}

func TestAMissingTensorIsNamed(t *testing.T) {
	s := smallLayer(t, shows(t, "FWD-04"))
	var tensors []*Tensor
	for _, one := range s.tensors(t) {
		if one.Role != RoleDown {
			tensors = append(tensors, one)
		}
	}
	_, err := LoadWeights(s.plan, tensors, nil)
	if err == nil || !strings.Contains(err.Error(), "down") {
		t.Fatal(err)
	}
}

func TestTensorsOfACheckpoint(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	tensors, err := g.checkpoint.Tensors(g.layer)
	must(t, err)
	roles := map[Role]bool{}
	for _, one := range tensors {
		roles[one.Role] = true
		if len(one.Bytes()) == 0 && one.DataPerExpert == nil {
			t.Fatal(one.Role, "has no bytes")
		}
	}
	if !roles[RoleRouter] || !roles[RoleGate] || !roles[RoleUp] || !roles[RoleDown] {
		t.Fatal(roles)
	}
	weights, err := LoadWeights(g.plan, tensors, &LoadOptions{Ownership: OwnBorrow})
	must(t, err)
	defer weights.Close()
	must(t, g.checkpoint.Close())
	out := make([]float32, len(g.y))
	must(t, Forward(g.plan, weights, g.workspace, &ForwardArgs{X: Of(g.x), Out: Of(out)}))
	g.near(t, out, 1e-5)
	_, err = LoadWeights(g.plan, tensors, nil)
	mustBe(t, err, ErrClosed)
}

func TestQuantiseAndReadBack(t *testing.T) {
	data := shows(t, "FWD-05")
	coarse := map[int]float64{2: 0.5, 3: 0.5, 4: 0.2, 5: 0.1, 6: 0.1, 8: 0.05, 16: 4e-3}
	for _, name := range FormatNames() {
		format, err := FormatByName(name)
		must(t, err)
		info, err := format.Info()
		must(t, err)
		rows, columns, limit := int64(128), int64(256), coarse[int(info.BitsPerWeight)]
		if name == data["format"] {
			rows, columns, limit = data["rows"].(int64), data["columns"].(int64), data["relative_l2"].(float64)
		}
		random, matrix := rand.New(rand.NewSource(1)), make([]float32, rows*columns)
		for i := range matrix {
			matrix[i] = float32(random.NormFloat64())
		}
		tensor, err := Quantize(RoleGate, matrix, rows, columns, format, nil)
		if !info.HasEncode {
			mustBe(t, err, ErrUnsupported)
			continue
		}
		must(t, err)
		again, err := tensor.Dequantize(0)
		must(t, err)
		if found := relativeL2(t, again, matrix, 1); found > limit {
			t.Fatalf("%s: %g, more than %g", name, found, limit)
		}
	}
}

func TestScalesGoToTilesAndBack(t *testing.T) {
	const rows, columns, groups = 130, 80, 5
	format, err := FormatByName("nvfp4")
	must(t, err)
	random, matrix := rand.New(rand.NewSource(1)), make([]float32, rows*columns)
	for i := range matrix {
		matrix[i] = float32(random.NormFloat64())
	}
	tensor, err := Quantize(RoleGate, matrix, rows, columns, format, nil)
	must(t, err)
	wanted, err := tensor.Dequantize(0)
	must(t, err)
	linear, err := ConvertScales(tensor.Scales, ScaleLayoutLinear, ScaleLayoutLinear, rows, groups)
	must(t, err)
	tiles, err := ConvertScales(tensor.Scales, ScaleLayoutLinear, ScaleLayoutTiled128x4, rows, groups)
	must(t, err)
	if len(tiles) != 4*512 || tiles[21] != linear[33*groups+1] {
		t.Fatal(len(tiles), tiles[21], linear[33*groups+1])
	}
	back, err := ConvertScales(Of(tiles), ScaleLayoutTiled128x4, ScaleLayoutLinear, rows, groups)
	must(t, err)
	if !reflect.DeepEqual(back, linear) {
		t.Fatal("not what was converted")
	}
	tensor.Scales, tensor.ScaleLayout = Of(tiles), ScaleLayoutTiled128x4
	again, err := tensor.Dequantize(0)
	must(t, err)
	if !reflect.DeepEqual(again, wanted) {
		t.Fatal("tiled scales give other values")
	}
	tensor.ScaleLayout = 2
	_, err = tensor.Dequantize(0)
	mustBe(t, err, ErrInvalidArgument)
	_, err = ConvertScales(Of(tiles), ScaleLayoutTiled128x4, ScaleLayoutLinear, 1<<40, groups)
	mustBe(t, err, ErrInvalidArgument)
}

func TestAnAbsentDeviceIsRefused(t *testing.T) {
	shows(t, "FWD-05")
	g := openGolden(t, qwen3, nil)
	options := g.options(g.checkpoint)
	options.Device = DeviceCUDA
	wanted := error(ErrNoDevice)
	if !strings.Contains(BuildInfo(), "cuda") {
		wanted = ErrNotBuilt
	} else if Supports(options) == nil {
		options.DeviceIndex = 1000
		wanted = Supports(options)
	}
	if _, err := NewPlan(options); err == nil || (err.Error() != wanted.Error() && !isA(err, wanted)) {
		t.Fatal(err)
	}
}

func isA(err, wanted error) bool {
	failed, ok := err.(*Error)
	return ok && failed.Status == wanted
}

func TestADamagedCheckpoint(t *testing.T) {
	data := shows(t, "BAD-03")
	folder := t.TempDir()
	source := filepath.Join(root, data["source"].(string))
	for _, name := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		must(t, err)
		if name != "config.json" {
			text = text[:100]
		}
		must(t, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	_, err := OpenCheckpoint(folder, nil)
	mustBe(t, err, Status(data["status"].(int64)), "model.safetensors")
	mustBe(t, err, ErrCorruptFile)
}

func TestSixteenBits(t *testing.T) {
	g := readGolden(t, qwen3)
	layer, err := OpenLayer(g.path, &PlanOptions{XType: TypeBF16, CheckpointLayer: g.layer})
	must(t, err)
	defer layer.Close()
	x, out := make([]BF16, len(g.x)), make([]BF16, len(g.y))
	for i, value := range g.x {
		x[i] = BF16(math.Float32bits(value) >> 16) // the fixtures' x is exact in bfloat16
	}
	must(t, layer.Run(&ForwardArgs{X: Of(x), Out: Of(out)}))
	wide := make([]float32, len(out))
	for i, bits := range out {
		wide[i] = math.Float32frombits(uint32(bits) << 16)
	}
	g.near(t, wide, 2e-2)
}

func TestSavedWeightsAreNotInThisVersion(t *testing.T) {
	g := openGolden(t, qwen3, nil)
	path := filepath.Join(t.TempDir(), "packed")
	mustBe(t, g.loaded.Save(path), ErrUnsupported, "moe_weights_")
	_, err := OpenWeights(g.plan, path)
	mustBe(t, err, ErrUnsupported, "moe_weights_")
}
