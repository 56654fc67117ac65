package load

import (
	"testing"

	"coworker/integration/house/testuser"
)

const (
	mib     = 1 << 20
	block   = 1536 // octets of one exchange of the client
	workers = 32
)

func eachUser(t *testing.T, f func(t *testing.T, u testuser.User)) {
	for _, u := range testuser.All(t) {
		t.Run(u.String(), func(t *testing.T) { f(t, u) })
	}
}

// Many tunnels at once, with data at their beginning and at their end, in bounded memory, and every one of them is told.
func TestTunnels(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) { tunnels(t, u, 500, 200*mib) })
}

func tunnels(t *testing.T, u testuser.User, count int, memory int64) {
	w := newWorld(t, u)
	r := w.start(t, job{Kind: "tunnels", Count: count, Workers: workers})
	r.held()
	if open := w.origin.count(); open != count {
		t.Errorf("%d connections to the origin, want %d", open, count)
	}
	resident := r.memory()
	t.Logf("the proxy has %d MiB with %d tunnels", resident/mib, count)
	if resident > memory {
		t.Errorf("want at most %d MiB", memory/mib)
	}
	got := r.end()
	if got.Errors > 0 || got.Requests != 2*count {
		t.Errorf("%d exchanges and %d errors (%s), want %d", got.Requests, got.Errors, got.Error, 2*count)
	}
	w.origin.ended(t)
	want := flows{Count: int64(count), In: int64(2 * count * block), Out: int64(2 * count * block)}
	if told := w.reported(t); told != want {
		t.Errorf("the report tells %+v, want %+v", told, want)
	}
	if told := w.stored(t); told != want {
		t.Errorf("the audit store tells %+v, want %+v", told, want)
	}
}

// Clients that begin requests and do not end them keep nobody else from the proxy.
func TestSlowHeads(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) { slowHeads(t, u, 300, 200*mib) })
}

func slowHeads(t *testing.T, u testuser.User, count int, memory int64) {
	w := newWorld(t, u)
	r := w.start(t, job{Kind: "slow", Count: count, Workers: workers, During: w.normal()})
	r.held()
	resident := r.memory()
	t.Logf("the proxy has %d MiB with %d half requests", resident/mib, count)
	if resident > memory {
		t.Errorf("want at most %d MiB", memory/mib)
	}
	got := r.end()
	if got.Errors > 0 {
		t.Errorf("%d errors of slow clients: %s", got.Errors, got.Error)
	}
	normally(t, got.During)
	w.origin.ended(t)
}

// normal is a client that behaves, with 50 tunnels one after the other and some of them at once.
func (w *world) normal() *job {
	return &job{Kind: "tunnels-each", Count: 50, Workers: 4, Host: "origin.test", Port: echoPort, Proxy: "127.0.0.1:3128"}
}

func normally(t *testing.T, got *result) {
	t.Helper()
	if got == nil || got.Errors > 0 || got.Requests != 50 {
		t.Errorf("the client that behaves: %+v, want 50 exchanges", got)
	}
}

// A storm of connections that are reset in the middle of data is survived, and told.
func TestResets(t *testing.T) {
	eachUser(t, func(t *testing.T, u testuser.User) { resets(t, u, 500) })
}

func resets(t *testing.T, u testuser.User, count int) {
	w := newWorld(t, u)
	r := w.start(t, job{Kind: "resets", Count: count, Workers: workers, During: w.normal()})
	r.held()
	resident := r.memory()
	t.Logf("the proxy has %d MiB after %d resets", resident/mib, count)
	got := r.end()
	if got.Errors > 0 || got.Requests != count {
		t.Errorf("%d resets and %d errors (%s), want %d", got.Requests, got.Errors, got.Error, count)
	}
	normally(t, got.During)
	w.origin.ended(t)
	reported, stored := w.reported(t), w.stored(t)
	if reported != stored || stored.Count != int64(count+50) || stored.Broken == 0 {
		t.Errorf("the report tells %+v, the audit store %+v, want %d", reported, stored, count+50)
	}
}
