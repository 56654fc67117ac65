//go:build !linux || !cgo

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "coworker-box: this build has no libcontainer: it needs Linux and cgo")
	os.Exit(120)
}
