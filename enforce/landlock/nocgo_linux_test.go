//go:build !cgo

package landlock

const cgo = false
