//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "coworker-wallsd: no backend for this system in this build")
	os.Exit(120)
}
