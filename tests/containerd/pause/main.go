// The program of the sandbox image: it holds the namespaces of a pod, and reaps what is left to it where the pod's
// containers share their processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil || process <= 0 {
				break
			}
		}
	}
}
