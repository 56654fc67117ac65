//go:build soak

package life

import (
	"testing"

	"coworker/integration/house/testuser"
)

// TestSoakKilledSessions kills a thousand sessions.
func TestSoakKilledSessions(t *testing.T) {
	users := testuser.All(t)
	for _, u := range users {
		t.Run(u.String(), func(t *testing.T) { killMany(t, u, 1000/len(users)) })
	}
}
