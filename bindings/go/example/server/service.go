package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"libmoe/moe"
)

const maxTokens = 64

var errStopped = errors.New("the service has stopped")

// Service is a layer, loaded once, and workers that compute it. Every worker has a workspace of its own.
type Service struct {
	Hidden int

	plan    *moe.Plan
	weights *moe.Weights
	queue   chan *job
	stopped chan struct{}
	workers sync.WaitGroup

	answered, dropped, discarded atomic.Int64
}

type job struct {
	context context.Context
	x, out  []float32
	done    chan error // of one element: the worker never waits for who asked
}

// NewService loads the first MoE layer of a checkpoint. A call has one thread; calls run beside each other.
func NewService(path string, workers int) (*Service, error) {
	checkpoint, err := moe.OpenCheckpoint(path, nil)
	if err != nil {
		return nil, err
	}
	defer checkpoint.Close()
	layers, err := checkpoint.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, fmt.Errorf("%s has no MoE layer", path)
	}
	desc, err := checkpoint.Layer(layers[0])
	if err != nil {
		return nil, err
	}
	plan, err := moe.NewPlan(&moe.PlanOptions{
		Checkpoint: checkpoint, CheckpointLayer: layers[0], Device: moe.DeviceCPU, XType: moe.TypeF32, MaxTokens: maxTokens,
	})
	if err != nil {
		return nil, err
	}
	weights, err := moe.LoadCheckpoint(plan, checkpoint, layers[0], &moe.LoadOptions{Ownership: moe.OwnBorrow})
	if err != nil {
		plan.Close()
		return nil, err
	}
	s := &Service{Hidden: int(desc.Hidden), plan: plan, weights: weights}
	s.queue, s.stopped = make(chan *job, 4*workers), make(chan struct{})
	if err := s.start(workers); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Service) start(workers int) error {
	for i := 0; i < workers; i++ {
		workspace, err := moe.NewWorkspace(s.plan, nil)
		if err != nil {
			return err
		}
		s.workers.Add(1)
		go s.work(workspace)
	}
	return nil
}

func (s *Service) work(workspace *moe.Workspace) {
	defer s.workers.Done()
	defer workspace.Close()
	for {
		select {
		case <-s.stopped:
			return
		case one := <-s.queue:
			s.run(one, workspace)
		}
	}
}

func (s *Service) run(one *job, workspace *moe.Workspace) {
	if one.context.Err() != nil {
		s.dropped.Add(1)
		return
	}
	args := &moe.ForwardArgs{X: moe.Of(one.x), Out: moe.Of(one.out), NThreads: 1}
	one.done <- moe.Forward(s.plan, s.weights, workspace, args)
	if one.context.Err() != nil {
		s.discarded.Add(1)
	}
}

// Forward is x [T, hidden] -> [T, hidden]. When ctx is done it returns at once: a request that waits is dropped, and the result of
// a call that runs is thrown away, as a call cannot be interrupted. x must stay unchanged until then; the collector keeps it.
func (s *Service) Forward(ctx context.Context, x []float32) ([]float32, error) {
	if len(x)%s.Hidden != 0 || len(x) > maxTokens*s.Hidden {
		return nil, fmt.Errorf("%d values: must be rows of %d, %d rows at most: %w", len(x), s.Hidden, maxTokens, moe.ErrInvalidArgument)
	}
	one := &job{ctx, x, make([]float32, len(x)), make(chan error, 1)}
	select {
	case s.queue <- one:
	case <-ctx.Done():
		s.dropped.Add(1)
		return nil, ctx.Err()
	case <-s.stopped:
		return nil, errStopped
	}
	select {
	case err := <-one.done:
		return one.out, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.stopped:
		return nil, errStopped
	}
}

// ServeHTTP is one request. Its context is done when the client goes away.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/forward" {
		http.Error(w, "POST /forward", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(4*maxTokens*s.Hidden)))
	if err == nil && len(body)%4 != 0 {
		err = fmt.Errorf("%d bytes are no float32 values", len(body))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := s.Forward(r.Context(), floats(body))
	switch {
	case errors.Is(err, context.Canceled):
		return // nobody is there to be told
	case errors.Is(err, moe.ErrInvalidArgument):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		s.answered.Add(1)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(bytesOf(out)) // an error here is the client's leaving
	}
}

// Close waits for the calls that run and ends the layer, once. A request that waits gets an error.
func (s *Service) Close() {
	close(s.stopped)
	s.workers.Wait()
	s.weights.Close()
	s.plan.Close()
}

// Counts says what became of the requests.
func (s *Service) Counts() string {
	return fmt.Sprintf("%d answered, %d dropped before they ran, %d results discarded",
		s.answered.Load(), s.dropped.Load(), s.discarded.Load())
}

func floats(bytes []byte) []float32 {
	values := make([]float32, len(bytes)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return values
}

func bytesOf(values []float32) []byte {
	bytes := make([]byte, 4*len(values))
	for i, value := range values {
		binary.LittleEndian.PutUint32(bytes[4*i:], math.Float32bits(value))
	}
	return bytes
}
