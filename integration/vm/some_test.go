package vm

import (
	"slices"
	"testing"
)

// someKernels are those of the names. Boots under emulation take most of the time of the tests, so what was written for every
// kernel runs on the ones where it tells most, and on the others in make soak.
func someKernels(names ...string) []Kernel {
	return slices.DeleteFunc(Kernels(), func(k Kernel) bool { return !slices.Contains(names, k.Name) })
}

func TestGuard(t *testing.T) { testGuard(t, someKernels("6.12")) }

func TestHardened(t *testing.T) { testHardened(t, someKernels("6.1")) }

func TestHelper(t *testing.T) { testHelper(t, someKernels("6.1")) }

func TestPrograms(t *testing.T) { testPrograms(t, someKernels("5.10")) }

func TestStaged(t *testing.T) { testStaged(t, someKernels("5.10")) }
