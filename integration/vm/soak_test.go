//go:build soak

package vm

import "testing"

func TestSoakGuard(t *testing.T) { testGuard(t, someKernels("5.10", "6.1")) }

func TestSoakHardened(t *testing.T) { testHardened(t, someKernels("5.10", "6.12")) }

func TestSoakHelper(t *testing.T) { testHelper(t, someKernels("5.10", "6.12")) }

func TestSoakPrograms(t *testing.T) { testPrograms(t, someKernels("6.1", "6.12")) }

func TestSoakStaged(t *testing.T) { testStaged(t, someKernels("6.1", "6.12")) }
