// Command uses stands for code that raises a wall; the tests look into its binary.
package main

import (
	"fmt"
	"os"

	"coworker/enforce"
	"coworker/enforce/enforcetest"
)

func main() {
	spec := enforce.Spec{Fault: enforce.Wall(os.Args[1])}
	if enforcetest.Off(spec, enforce.Kernel) {
		fmt.Println("the branch without the wall")
		return
	}
	fmt.Println("raised")
}
