package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand"
	"net"
	"net/http"
	"sort"
	"sync"
	"time"

	"libmoe/moe"
)

const (
	nQuestions  = 64
	cancelEvery = 6    // one request of so many has a client that loses patience
	tolerance   = 1e-5 // relative L2 error of a token
)

// question is a request and its answer, computed before the load by another layer in another arithmetic.
type question struct{ x, answer []float32 }

// questions are of random lengths. Their answers come from the reference in float64, on one thread, in a layer of its own.
func questions(path string) ([]question, error) {
	threads, err := moe.NewRuntime(&moe.RuntimeOptions{NThreads: 1})
	if err != nil {
		return nil, err
	}
	defer threads.Close()
	layer, err := moe.OpenLayer(path, &moe.PlanOptions{Runtime: threads, IntermediateType: moe.TypeF64, MaxTokens: maxTokens})
	if err != nil {
		return nil, err
	}
	defer layer.Close()
	random := rand.New(rand.NewSource(1))
	made := make([]question, nQuestions)
	for i := range made {
		x := make([]float32, (1+random.Intn(maxTokens))*layer.Hidden)
		for j := range x {
			x[j] = float32(random.NormFloat64())
		}
		made[i] = question{x, make([]float32, len(x))}
		if err := layer.Forward(x, made[i].answer); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// check is an error unless every token is that of the answer.
func (q question) check(got []float32, hidden int) error {
	if len(got) != len(q.answer) {
		return fmt.Errorf("an answer of %d values, must have %d", len(got), len(q.answer))
	}
	for begin := 0; begin < len(got); begin += hidden {
		var difference, size float64
		for i := begin; i < begin+hidden; i++ {
			off := float64(got[i]) - float64(q.answer[i])
			difference += off * off
			size += float64(q.answer[i]) * float64(q.answer[i])
		}
		if worst := math.Sqrt(difference / size); !(worst <= tolerance) {
			return fmt.Errorf("token %d of %d is off by %g", begin/hidden, len(got)/hidden, worst)
		}
	}
	return nil
}

// tally is what clients saw.
type tally struct {
	mutex     sync.Mutex
	latencies []time.Duration
	cancelled int
	errors    []error
}

func (t *tally) add(latency time.Duration, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		t.cancelled++
	case err != nil:
		t.errors = append(t.errors, err)
	default:
		t.latencies = append(t.latencies, latency)
	}
}

// percentile of latencies that are sorted.
func (t *tally) percentile(p int) time.Duration {
	if len(t.latencies) == 0 {
		return 0
	}
	return t.latencies[(len(t.latencies)-1)*p/100].Round(time.Microsecond)
}

type load struct {
	url       string
	hidden    int
	questions []question
	http      *http.Client
}

// ask sends one request and checks the answer.
func (l *load) ask(ctx context.Context, q question) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(bytesOf(q.x)))
	if err != nil {
		return err
	}
	response, err := l.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return q.check(floats(body), l.hidden)
}

// client asks until the time is over. Some of its requests have less patience than an answer takes.
func (l *load) client(seed int64, end time.Time, seen *tally) {
	random := rand.New(rand.NewSource(seed))
	for time.Now().Before(end) {
		patience := time.Minute
		if random.Intn(cancelEvery) == 0 {
			patience = time.Duration(random.Int63n(int64(5 * time.Millisecond)))
		}
		ctx, release := context.WithTimeout(context.Background(), patience)
		begin := time.Now()
		err := l.ask(ctx, l.questions[random.Intn(len(l.questions))])
		release()
		// A connection that is not made in time has an error of its own in Go 1.19.
		var timed net.Error
		if errors.As(err, &timed) && timed.Timeout() {
			err = context.DeadlineExceeded
		}
		if patience == time.Minute && errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("no answer in a minute")
		}
		seen.add(time.Since(begin), err)
	}
}

func (l *load) run(clients int, duration time.Duration, seed int64) *tally {
	seen := &tally{}
	var group sync.WaitGroup
	end := time.Now().Add(duration)
	for i := 0; i < clients; i++ {
		group.Add(1)
		go func(seed int64) {
			defer group.Done()
			l.client(seed, end, seen)
		}(seed + int64(i))
	}
	group.Wait()
	l.http.CloseIdleConnections()
	sort.Slice(seen.latencies, func(i, j int) bool { return seen.latencies[i] < seen.latencies[j] })
	return seen
}

// runLoad serves clients of its own. Any error, a load without cancelled requests, and growth of the process are its error.
func runLoad(path string, workers, clients int, duration time.Duration) error {
	questions, err := questions(path)
	if err != nil {
		return err
	}
	before := usageNow()
	service, err := NewService(path, workers)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		service.Close()
		return err
	}
	stop, release := context.WithCancel(context.Background())
	defer release()
	stopped := make(chan error, 1)
	go func() { stopped <- serveUntil(stop, listener, service) }()

	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	l := &load{fmt.Sprintf("http://%s/forward", listener.Addr()), service.Hidden, questions, &http.Client{Transport: transport}}
	l.run(clients, duration/5, 1000) // fills pools and stacks
	warm := usageNow()
	seen := l.run(clients, duration, 1)
	end := usageNow()
	release()
	if err := <-stopped; err != nil {
		return err
	}
	after := usageNow()

	fmt.Printf("%d workers, %d clients, %s: %d requests answered and right, %d cancelled, %d errors\n",
		workers, clients, duration, len(seen.latencies), seen.cancelled, len(seen.errors))
	fmt.Printf("latency p50 %v, p99 %v\n", seen.percentile(50), seen.percentile(99))
	fmt.Printf("after warming up %v; after the load %v; after the shutdown %v\n", warm, end, after)
	if len(seen.errors) > 0 {
		return fmt.Errorf("the first of %d errors: %w", len(seen.errors), seen.errors[0])
	}
	if len(seen.latencies) == 0 || seen.cancelled == 0 {
		return errors.New("a load without answers or without cancelled requests shows nothing")
	}
	if service.dropped.Load() == 0 {
		return errors.New("no request was dropped while it waited")
	}
	if err := warm.grownTo(end); err != nil {
		return err
	}
	if after.goroutines > before.goroutines {
		return fmt.Errorf("%d goroutines before, %d after the shutdown", before.goroutines, after.goroutines)
	}
	return nil
}
