//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "attacker: the attempts are made on Linux only")
	os.Exit(3)
}
