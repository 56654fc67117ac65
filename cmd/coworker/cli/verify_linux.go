package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"coworker/enforce"
	"coworker/platform/workfs"
	"coworker/runtime/session"
	"coworker/runtime/wallspec"
)

// sandboxVerify proves the walls on demand.
func sandboxVerify(ctx context.Context, e *environment, asJSON bool, f execFlags) error {
	wanted, err := enforce.ParseLevel(f.level)
	if err != nil || wanted == enforce.Direct {
		return &usageError{text: fmt.Sprintf("--level %q: want partial, enforced or hardened", f.level), hint: "enforced is the default"}
	}
	host, err := localHost()
	if err != nil {
		return err
	}
	done := e.progress("proving the walls")
	v, err := e.verify(ctx, host, f)
	done()
	if v == nil && asJSON && ExitCode(err) == exitWalls {
		v = &verification{Walls: map[enforce.Wall]enforce.WallState{}, Probes: []probeResult{}, Kernel: kernelRelease(), Versions: versions("", 0), Error: err.Error()}
	}
	if v == nil {
		return err
	}
	if asJSON {
		if printErr := e.printJSON(v); printErr != nil {
			return printErr
		}
	} else {
		v.print(e.out, styleFor(e.out, e.getenv), wanted)
	}
	return err
}

// verify opens a session, attacks it and ends it. An answer that came with a refusal is given too.
func (e *environment) verify(ctx context.Context, host wallspec.Host, f execFlags) (_ *verification, err error) {
	f.write = true
	workspace := f.workspace
	if workspace == "" {
		dir, err := os.MkdirTemp("", "coworker-verify-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		f.workspace = dir
	}
	p, err := e.decide(ctx, f, host)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if workspace == "" {
		defer func() { err = errors.Join(err, removeHome(p.plan.Spec.HomeStore)) }()
	}
	p.once = true
	stop := followSignals(ctx)
	defer stop.end()
	rec := e.recorder(context.WithoutCancel(ctx), p, "verify")
	defer rec.close()
	s, err := e.open(stop.ctx, p, rec, func(session.Notice) {})
	if code := stop.code(); err != nil && code != 0 {
		return nil, &statusError{code}
	}
	if err != nil {
		var refused *session.RefusedError
		if errors.As(err, &refused) && refused.Attestation != nil {
			return newVerification(*refused.Attestation), err
		}
		return nil, err
	}
	a, _ := s.Attestation()
	rec.name(s.ID())
	err = errors.Join(s.Close(), rec.flush(context.WithoutCancel(ctx)))
	return newVerification(a), err
}

func newVerification(a session.Attestation) *verification {
	v := &verification{Level: a.Level, Walls: a.Walls, Probes: []probeResult{}, Kernel: a.Kernel, Versions: versions(a.Cell, a.Landlock), Notes: a.Notes, limits: a.Limits, missing: a.Missing, Lacking: a.Lacking}
	v.Versions["backend"] = string(a.Backend)
	for _, p := range a.Probes {
		v.Probes = append(v.Probes, probeResult{Name: p.Name, Wall: p.Wall, Want: p.Want, Got: p.Got, Detail: p.Detail, Alone: p.Alone, ok: p.OK()})
	}
	return v
}

func versions(cell string, abi int) map[string]string {
	return map[string]string{"coworker": Version, "go": runtime.Version(), "cell_sha256": cell, "landlock_abi": strconv.Itoa(abi)}
}

// removeHome deletes the private home of a workspace that was made for one run.
func removeHome(store string) error {
	root, err := workfs.OpenRoot(filepath.Dir(store))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return removeBelow(root, filepath.Base(store))
}
