//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "coworker-proxy: no backend for this system in this build")
	os.Exit(120)
}
