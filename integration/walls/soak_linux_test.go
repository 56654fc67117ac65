//go:build soak

package walls

import (
	"testing"

	"coworker/integration/house/testuser"
)

// TestSoakKilledSessions is TestKilledSessions, for longer.
func TestSoakKilledSessions(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) { killSessions(t, u, 500) })
}
