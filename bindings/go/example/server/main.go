// Server loads one MoE layer of a checkpoint and computes it for many clients at once, over HTTP.
//
//	server [-listen ADDRESS] [-workers N] CHECKPOINT     until SIGINT or SIGTERM
//	server -load 30s [-clients N] CHECKPOINT             serve clients of its own for that long, and check everything
//
// A request is POST /forward whose body is x [T, hidden], float32 in little endian; the answer is as long. Without a checkpoint at
// hand, the command moe makes one: moe make-model qwen3-30b-a3b /tmp/qwen3 --reduced
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:8471", "address to listen on")
	workers := flag.Int("workers", runtime.NumCPU(), "calls that run at once, of one thread each")
	load := flag.Duration("load", 0, "send requests to itself for so long")
	clients := flag.Int("clients", 16, "clients of -load")
	flag.Parse()
	if flag.NArg() != 1 || *workers < 1 || *clients < 1 {
		log.Fatal("usage: server [-listen ADDRESS] [-workers N] [-load DURATION] [-clients N] CHECKPOINT")
	}
	run := func() error { return serve(flag.Arg(0), *listen, *workers) }
	if *load > 0 {
		run = func() error { return runLoad(flag.Arg(0), *workers, *clients, *load) }
	}
	if err := run(); err != nil {
		log.Fatal("server: ", err)
	}
}

func serve(path, address string, workers int) error {
	stop, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	layer, err := NewService(path, workers)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		layer.Close()
		return err
	}
	fmt.Printf("listening on %s: hidden %d, %d workers\n", listener.Addr(), layer.Hidden, workers)
	return serveUntil(stop, listener, layer)
}

// serveUntil answers until stop is done, then lets requests that are there finish, and closes the service.
func serveUntil(stop context.Context, listener net.Listener, service *Service) error {
	server := &http.Server{Handler: service, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-stop.Done():
		patience, release := context.WithTimeout(context.Background(), 10*time.Second)
		defer release()
		if err = server.Shutdown(patience); err != nil {
			server.Close()
		}
		<-failed
	}
	service.Close()
	fmt.Printf("stopped: %s\n", service.Counts())
	return err
}
