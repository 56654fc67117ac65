// Vmsetup fills the kernel cache of the kernel matrix. The tests do so by
// themselves; run it before them to see downloads apart from test results, or to
// fill a cache that a build service keeps. It installs nothing: see `make deps`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"coworker/integration/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fill(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func fill(ctx context.Context) error {
	for _, k := range vm.Kernels() {
		start := time.Now()
		image, err := vm.Ensure(ctx, k)
		if err != nil {
			return err
		}
		fmt.Printf("kernel %-5s %5.1fs  %s (%s)\n", k.Name, time.Since(start).Seconds(), image.Package, image.Suite)
	}
	return nil
}
