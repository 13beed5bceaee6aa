package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// A load may add this: free lists of two allocators, threads that Go keeps. A leak of 1 KiB for each request is more.
const (
	maxGrowth  = 16 << 20
	maxThreads = 8
)

// usage is what the process has.
type usage struct {
	resident   int64
	threads    int
	goroutines int
}

// usageNow is taken when goroutines of the last requests have ended and the collector has run.
func usageNow() usage {
	now := usage{goroutines: runtime.NumGoroutine()}
	for try := 0; try < 20; try++ { // connections close behind their last answer
		time.Sleep(50 * time.Millisecond)
		if n := runtime.NumGoroutine(); n < now.goroutines {
			now.goroutines = n
		}
	}
	debug.FreeOSMemory()
	var pages, resident int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(statm), &pages, &resident)
	}
	tasks, tasksErr := os.ReadDir("/proc/self/task")
	if err != nil || tasksErr != nil {
		panic(fmt.Sprint("no /proc: ", err, tasksErr))
	}
	now.resident, now.threads = resident*int64(os.Getpagesize()), len(tasks)
	return now
}

func (u usage) String() string {
	return fmt.Sprintf("%.1f MiB, %d threads, %d goroutines", float64(u.resident)/(1<<20), u.threads, u.goroutines)
}

func (u usage) grownTo(end usage) error {
	if end.resident-u.resident > maxGrowth || end.threads-u.threads > maxThreads || end.goroutines > u.goroutines {
		return fmt.Errorf("the process has grown: %v, then %v", u, end)
	}
	return nil
}
