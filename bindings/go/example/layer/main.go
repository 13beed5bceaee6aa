// Layer runs one MoE layer of a checkpoint on random tokens and says what happened.
//
//	layer [-layer N] [-tokens T] CHECKPOINT
//
// Without a checkpoint at hand, the command moe makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand"

	"libmoe/moe"
)

func main() {
	log.SetFlags(0)
	layer := flag.Int("layer", -1, "decoder layer; default: the first MoE layer")
	tokens := flag.Int("tokens", 4, "tokens")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: layer [-layer N] [-tokens T] CHECKPOINT")
	}
	if err := run(flag.Arg(0), int32(*layer), *tokens); err != nil {
		log.Fatal(err)
	}
}

func run(path string, layer int32, tokens int) error {
	checkpoint, err := moe.OpenCheckpoint(path, nil)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	if layer < 0 {
		layers, err := checkpoint.Layers()
		if err != nil {
			return err
		}
		if len(layers) == 0 {
			return fmt.Errorf("%s has no MoE layer", path)
		}
		layer = layers[0]
	}
	desc, err := checkpoint.Layer(layer)
	if err != nil {
		return err
	}
	info, err := checkpoint.Info()
	if err != nil {
		return err
	}
	fmt.Printf("%s, layer %d: top %d of %d experts, hidden %d\n", info.Family, layer, desc.TopK, desc.NExperts, desc.Hidden)

	plan, err := moe.NewPlan(&moe.PlanOptions{
		Checkpoint: checkpoint, CheckpointLayer: layer, Device: moe.DeviceCPU, XType: moe.TypeF32, MaxTokens: int64(tokens),
	})
	if err != nil {
		return err
	}
	defer plan.Close()
	weights, err := moe.LoadCheckpoint(plan, checkpoint, layer, &moe.LoadOptions{Ownership: moe.OwnBorrow})
	if err != nil {
		return err
	}
	defer weights.Close()
	return forward(plan, weights, tokens, int(desc.Hidden), int(desc.TopK))
}

func forward(plan *moe.Plan, weights *moe.Weights, tokens, hidden, topK int) error {
	workspace, err := moe.NewWorkspace(plan, nil)
	if err != nil {
		return err
	}
	defer workspace.Close()
	random := rand.New(rand.NewSource(1))
	x, out, ids := make([]float32, tokens*hidden), make([]float32, tokens*hidden), make([]int32, tokens*topK)
	for i := range x {
		x[i] = float32(random.NormFloat64())
	}
	err = moe.Forward(plan, weights, workspace, &moe.ForwardArgs{X: moe.Of(x), Out: moe.Of(out), OutIDs: moe.Of(ids)})
	if err != nil {
		return err
	}
	for token := 0; token < tokens; token++ {
		sum := 0.0
		for _, value := range out[token*hidden : (token+1)*hidden] {
			sum += float64(value) * float64(value)
		}
		chosen := ids[token*topK : (token+1)*topK]
		fmt.Printf("token %d: experts %v, rms of out %.4f\n", token, chosen, math.Sqrt(sum/float64(hidden)))
	}
	return nil
}
