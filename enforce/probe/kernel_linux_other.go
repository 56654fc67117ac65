//go:build linux && !amd64

package probe

// archCalls exist on amd64 only.
var archCalls []call
