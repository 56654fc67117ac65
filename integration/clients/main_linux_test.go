package clients

import (
	"os"
	"testing"

	"coworker/integration/product"
)

// binaries is the folder with coworker and its helpers, open to all users.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(product.Main(m, func(dir string) error { return product.Release(dir, "test") }, func(dir string) { binaries = dir }))
}
