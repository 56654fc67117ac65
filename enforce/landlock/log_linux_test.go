package landlock

import "testing"

// The kernel gets the flags that were asked for, and none otherwise: a filter lets only the right ones pass.
func TestLogFlags(t *testing.T) {
	abi := needABI(t)
	const sameExecOff, newExecOn = 1 << 0, 1 << 1 // LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, LOG_NEW_EXEC_ON
	for _, row := range []struct {
		name  string
		log   bool
		flags int
		fails bool
	}{
		{"asked", true, sameExecOff | newExecOn, false},
		{"asked, and others expected", true, newExecOn, true},
		{"not asked", false, 0, false},
		{"not asked, and some expected", false, sameExecOff | newExecOn, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := setUp(t, uids[0])
			j := s.job
			j.Mode, j.Errno, j.Rules.LogDenials = "flags", row.flags, row.log
			r := s.run(t, j)
			switch {
			case r.Class == "filter":
				t.Fatal(r.Err)
			case abi < logABI && row.log:
				if r.Class != "log" {
					t.Errorf("ABI %d: %s (%s), want a refusal", abi, r.Err, r.Class)
				}
			case (r.Err != "") != row.fails:
				t.Errorf("%q, fails: %v", r.Err, row.fails)
			}
		})
	}
}
